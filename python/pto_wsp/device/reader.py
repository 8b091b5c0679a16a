"""Reads a device from TOML, alone or on top of another one (`base`)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from pto_wsp.device.checks import check_device
from pto_wsp.device.model import (
    Cache,
    CoreCache,
    CoreKind,
    Device,
    Dispatchers,
    HostLink,
    InstructionCost,
    Route,
    Widths,
)
from pto_wsp.device.topology import read_topology
from pto_wsp.errors import BadDevice, NotCalibrated, UnknownDevice, WrongValue, did_you_mean
from pto_wsp.ir.kernel import UNITS
from pto_wsp.isa.table import TABLE
from pto_wsp.location import argument_location
from pto_wsp.support.cache_directory import default_directory
from pto_wsp.types.space import Space

PRESETS = Path(__file__).parent / "presets"

HOST = "host"
"""The device that is this machine."""

NO_COSTS = "none"
"""The name of a table of costs without rows: a device that has it states them all."""

T = TypeVar("T")


def preset_names() -> list[str]:
    """Return the names of the devices of this package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def host_path() -> Path:
    """Return where the calibration of this machine is, which `HOST` reads."""
    return default_directory() / f"{HOST}.toml"


def host() -> Device:
    """Return this machine, as it was calibrated.

    Raises:
        NotCalibrated: it was not, or the calibration is of another machine.
        BadDevice: the file was changed by hand, and cannot be used.
    """
    path, about = host_path(), read_topology().about
    if not path.exists():
        raise NotCalibrated(reason="there are no figures of it")
    device = read_device(path)
    if device.about != about:
        raise NotCalibrated(reason=f"the figures are those of `{device.about}`, and this is `{about}`")
    return device


@cache
def preset(name: str) -> Device:
    """Return a device of this package.

    Raises:
        UnknownDevice: there is none of this name.
    """
    return read_device(_preset_path(name))


def get_device(device: str | Path | Device) -> Device:
    """Return a device: itself, a preset by its name, this machine (`host`), or that of a TOML file.

    Raises:
        UnknownDevice: there is no preset of this name.
        NotCalibrated: this machine has not been measured.
        BadDevice: the file does not describe a device, or a number of the device cannot be used.
        WrongValue: it is none of these.
    """
    if isinstance(device, Device):
        return check_device(device)
    if not isinstance(device, (str, Path)):
        expected = "the name of a device, a path, or a Device"
        raise WrongValue(
            name="device", expected=expected, found=repr(device), loc=argument_location("device")
        )
    if isinstance(device, Path) or str(device).endswith(".toml"):
        return read_device(Path(device))
    return host() if device == HOST else preset(device)


def read_device(path: Path) -> Device:
    """Return the device that a TOML file describes.

    Raises:
        BadDevice: the file cannot be read, or a key is missing, unknown, or of a value that it cannot have.
    """
    return _Reader(str(path)).device(_layers(path))


def _preset_path(name: str) -> Path:
    path = PRESETS / f"{name}.toml"
    if name not in preset_names():
        advice = did_you_mean(name, [*preset_names(), HOST])
        raise UnknownDevice(name=name, advice=advice, loc=argument_location("device"))
    return path


def _load(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadDevice(device=path, key="the file", expected="a file in TOML", found=str(error)) from error


def _layers(path: Path, above: tuple[Path, ...] = ()) -> dict[str, object]:
    """Return what a file says on top of its base. The files `above` have it as their base."""
    if path.resolve() in above:
        expected, found = "a file that is not based on itself", str(path)
        raise BadDevice(device=above[0], key="base", expected=expected, found=found)
    own = _load(path)
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise BadDevice(device=path, key="base", expected="the name of a device", found=repr(base))
    other = path.parent / base if base.endswith(".toml") else _preset_path(base)
    return _merged(_layers(other, (*above, path.resolve())), own)


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        elif isinstance(old, str) and isinstance(value, dict):  # rows of costs on top of a named table
            result[key] = {"base": old, **value}
        else:
            result[key] = value
    return result


class _Reader:
    """Takes values out of tables, and refuses what it does not know."""

    def __init__(self, file: str) -> None:
        self._file = file

    def device(self, data: dict[str, object]) -> Device:
        name = self.take(data, "", "name", str)
        costs = data.pop("costs", "a2a3_fit")
        own_costs: object = {}
        if isinstance(costs, dict):
            costs, own_costs = costs.pop("base", "a2a3_fit"), costs
        sources = self.table(data, "", "sources")
        gm = self.table(data, "", "gm")
        result = Device(
            name=name,
            about=self.take(data, "", "about", str, name),
            clock_ghz=self.positive(data, "", "clock_ghz"),
            cores=tuple(
                self.core_kind(kind, self.as_table(f"cores.{kind}", values))
                for kind, values in self.table(data, "", "cores").items()
            ),
            groups={
                key: self.as_count(f"groups.{key}", n) for key, n in self.table(data, "", "groups").items()
            },
            transfers=tuple(
                self.transfer(i, self.as_table("transfers", entry))
                for i, entry in enumerate(self.take(data, "", "transfers", list))
            ),
            gm_rate=self.positive(gm, "gm.", "rate"),
            gm_core_rate=self.positive(gm, "gm.", "core_rate", math.inf),
            l2=self.l2(self.table(data, "", "l2")),
            core_caches=tuple(
                self.core_cache(i, self.as_table("core_caches", entry))
                for i, entry in enumerate(self.take(data, "", "core_caches", list, []))
            ),
            widths=self.widths(self.table(data, "", "widths")),
            dispatchers=self.dispatchers(self.table(data, "", "dispatchers")),
            host=self.host(self.table(data, "", "host")),
            costs=self.costs(str(costs), self.as_table("costs", own_costs)),
            cost_table=str(costs),
            sources={key: str(text) for key, text in sources.items()},
            unknown=tuple(str(key) for key in self.take(data, "", "unknown", list, [])),
        )
        self.end("gm.", gm)
        self.end("", data)
        return self.checked(result)

    def checked(self, device: Device) -> Device:
        if not device.cores:
            self.fail("cores", "a table for each kind of core", "none")
        kinds = {kind.name for kind in device.cores}
        for key in device.groups:
            if key not in kinds:
                self.fail(f"groups.{key}", f"a kind of core: {_listed(kinds)}", key)
        seen: dict[str, str] = {}
        for kind in device.cores:
            for unit in kind.units:
                if unit in seen:
                    self.fail(f"cores.{kind.name}.units", f"units that `{seen[unit]}` does not run", unit)
                seen[unit] = kind.name
        pipes = {pipe for kind in device.cores for pipe in kind.pipes}
        for i, way in enumerate(device.transfers):
            if way.pipe not in pipes:
                self.fail(f"transfers[{i}].pipe", f"a pipe of a core: {_listed(pipes)}", way.pipe)
        return device

    def core_kind(self, name: str, data: dict[str, object]) -> CoreKind:
        at = f"cores.{name}."
        memories = self.table(data, at, "memories")
        result = CoreKind(
            name=name,
            count=self.as_count(f"{at}count", self.take(data, at, "count", int)),
            units=tuple(
                self.one_of(f"{at}units", unit, UNITS[1:]) for unit in self.take(data, at, "units", list)
            ),
            pipes=tuple(str(pipe) for pipe in self.take(data, at, "pipes", list)),
            memories={
                self.space(f"{at}memories", key): self.as_count(f"{at}memories.{key}", size)
                for key, size in memories.items()
            },
        )
        self.end(at, data)
        return result

    def transfer(self, i: int, data: dict[str, object]) -> Route:
        at = f"transfers[{i}]."
        result = Route(
            source=self.space(f"{at}from", data.pop("from", None)),
            target=self.space(f"{at}to", data.pop("to", None)),
            pipe=self.take(data, at, "pipe", str),
            rate=self.positive(data, at, "rate"),
            start=self.amount(data, at, "start", 0.0),
        )
        self.end(at, data)
        return result

    def core_cache(self, i: int, data: dict[str, object]) -> CoreCache:
        at = f"core_caches[{i}]."
        size = self.as_count(f"{at}size", data.pop("size", None))
        result = CoreCache(size, self.positive(data, at, "rate"))
        self.end(at, data)
        return result

    def widths(self, data: dict[str, object]) -> Widths:
        keys = ("vector", "rows", "cols", "inner")
        result = Widths(**{key: self.as_count(f"widths.{key}", data.pop(key)) for key in keys if key in data})
        self.end("widths.", data)
        return result

    def l2(self, data: dict[str, object]) -> Cache:
        result = Cache(
            size=int(self.amount(data, "l2.", "size", 0)),
            block=int(self.positive(data, "l2.", "block", 512)),
            rate=self.positive(data, "l2.", "rate", math.inf),
            core_rate=self.positive(data, "l2.", "core_rate", math.inf),
            hit=self.amount(data, "l2.", "hit", 0.0),
            miss=self.amount(data, "l2.", "miss", 0.0),
        )
        self.end("l2.", data)
        return result

    def dispatchers(self, data: dict[str, object]) -> Dispatchers:
        at = "dispatchers."
        times = {key: self.amount(data, at, key, 0.0) for key in ("generate", "skip", "dispatch", "complete")}
        count = self.as_count(f"{at}count", self.take(data, at, "count", int))
        records = self.as_count(f"{at}records", self.take(data, at, "records", int, 1024))
        self.end(at, data)
        return Dispatchers(count=count, records=records, **times)

    def host(self, data: dict[str, object]) -> HostLink:
        result = HostLink(
            latency=self.amount(data, "host.", "latency", 0.0),
            rate=self.positive(data, "host.", "rate", math.inf),
            generate=self.amount(data, "host.", "generate", 0.0),
        )
        self.end("host.", data)
        return result

    def costs(self, table: str, own: dict[str, object]) -> Mapping[str, InstructionCost]:
        rows: dict[str, InstructionCost] = {}
        for words, values in (*self.cost_table(table).items(), *own.items()):
            for row in words.split():
                rows[self.one_of("costs", row, TABLE)] = self.cost(row, self.as_table(row, values))
        if missing := [row for row in TABLE if row not in rows]:
            self.fail("costs", "a cost of every instruction", f"none of `{missing[0]}`")
        return rows

    def cost_table(self, table: str) -> dict[str, object]:
        if table == NO_COSTS:
            return {}
        path = PRESETS / "costs" / f"{table}.toml"
        if not path.exists():
            found = [*(file.stem for file in path.parent.glob("*.toml")), NO_COSTS]
            self.fail("costs", f"a table of costs: {_listed(found)}", table)
        return self.as_table("costs", _load(path)["costs"])

    def cost(self, row: str, data: dict[str, object]) -> InstructionCost:
        at, data = f"costs.{row}.", dict(data)
        wide: tuple[int, InstructionCost] | None = None
        if "wide" in data:
            above = self.as_table(f"{at}wide", data.pop("wide"))
            columns = self.as_count(f"{at}wide.columns", above.pop("columns", None))
            wide = columns, self.cost(row, above)
        transposed = data.pop("transposed", None)
        keys = ("start", "repeat", "row", "block", "block_of_4", "right")
        numbers = {key: self.number(data, at, key, 0.0) for key in keys}
        self.end(at, data)
        other = None if transposed is None else self.cost(row, self.as_table(f"{at}transposed", transposed))
        return InstructionCost(**numbers, wide=wide, transposed=other)

    # Values

    def fail(self, key: str, expected: str, found: object) -> None:
        raise BadDevice(device=self._file, key=key, expected=expected, found=found)

    def end(self, at: str, data: Mapping[str, object]) -> None:
        """Refuse the keys that are left."""
        for key in data:
            self.fail(f"{at}{key}", "a key of a device", f"`{key}`")

    def take(self, data: dict[str, object], at: str, key: str, kind: type[T], default: T | None = None) -> T:
        value = data.pop(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            name = {str: "a text", int: "an integer", list: "a list"}[kind]
            self.fail(f"{at}{key}", name, "nothing" if value is None else repr(value))
        assert isinstance(value, kind)
        return value

    def table(self, data: dict[str, object], at: str, key: str) -> dict[str, object]:
        return self.as_table(f"{at}{key}", data.pop(key, {}))

    def as_table(self, key: str, value: object) -> dict[str, object]:
        if not isinstance(value, dict):
            self.fail(key, "a table", repr(value))
        assert isinstance(value, dict)
        return dict(value)

    def number(self, data: dict[str, object], at: str, key: str, default: float | None = None) -> float:
        value = data.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            self.fail(f"{at}{key}", "a number", "nothing" if value is None else repr(value))
        assert isinstance(value, (int, float))
        return value

    def amount(self, data: dict[str, object], at: str, key: str, default: float | None = None) -> float:
        value = self.number(data, at, key, default)
        if value < 0:
            self.fail(f"{at}{key}", "a number that is not negative", value)
        return value

    def positive(self, data: dict[str, object], at: str, key: str, default: float | None = None) -> float:
        value = self.number(data, at, key, default)
        if value <= 0:
            self.fail(f"{at}{key}", "a positive number", value)
        return value

    def as_count(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            self.fail(key, "a positive integer", repr(value))
        assert isinstance(value, int)
        return value

    def one_of(self, key: str, value: object, known: Iterable[str]) -> str:
        if value not in (names := tuple(known)):
            advice = did_you_mean(str(value), names) or f"one of {_listed(names)}"
            self.fail(key, advice.strip(" ()?"), repr(value))
        return str(value)

    def space(self, key: str, value: object) -> Space:
        return Space(self.one_of(key, value, [space.value for space in Space]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
