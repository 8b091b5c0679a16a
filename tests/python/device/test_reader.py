"""Descriptions of devices: what they can leave out, and what is refused by its key."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from docs.device_keys import NEEDED, Row, rows
from pto_wsp.device.checks import check_device
from pto_wsp.device.describe import describe
from pto_wsp.device.model import Cache, Dispatchers, InstructionCost, Widths
from pto_wsp.device.reader import PRESETS, get_device, preset_names
from pto_wsp.errors import BadDevice, UnknownDevice, WrongValue
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import replace
from tests.python.device.tables import cost_table, device_of

TINY = """
name = "tiny"
clock_ghz = 1.0
[cores.cpu]
count = 2
units = ["vector", "cube"]
pipes = ["mte2", "vector", "cube", "mte3"]
memories = { ub = 1024 }
[[transfers]]
from = "gm"
to = "ub"
pipe = "mte2"
rate = 8
[gm]
rate = 16
[dispatchers]
count = 1
"""


def test_a_small_description_is_enough(tmp_path: Path) -> None:
    device = device_of(tmp_path, TINY)
    assert device.by_unit["cube"] is device.by_unit["vector"]
    assert device.l2.size == 0 and device.dispatchers.generate == 0 and device.num_groups == 0
    assert device.cycles(3) == 3 and device.microseconds(2000) == 2
    assert "2 cores `cpu`" in describe(device)


def test_a_device_on_top_of_another_replaces_single_figures(tmp_path: Path) -> None:
    text = 'name = "faster"\nbase = "ascend_910b"\n[dispatchers]\ndispatch = 0\n[costs.add]\nstart = 7\n'
    faster, base = device_of(tmp_path, text), get_device("ascend_910b")
    assert faster.dispatchers.dispatch == 0 and faster.dispatchers.count == base.dispatchers.count
    assert faster.costs["add"].start == 7 and faster.costs["add"].repeat == 0
    assert faster.costs["sub"] == base.costs["sub"] and faster.cores == base.cores


def test_rows_of_costs_are_on_top_of_the_table_of_the_base(tmp_path: Path) -> None:
    device = device_of(tmp_path, 'name = "mine"\nbase = "ascend_950"\n[costs.exp]\nstart = 7\n')
    base = get_device("ascend_950")
    assert device.cost_table == base.cost_table == "a5_fit"
    assert device.costs["exp"].start == 7 and device.costs["add"] == base.costs["add"]


ROWS = [row for row in rows() if not row.key.startswith("costs.")]
EVERY = TINY.replace("[gm]", "[[core_caches]]\nsize = 64\nrate = 4\n[gm]")
LISTS = ("transfers[i]", "core_caches[i]")


def changed(key: str, value: object = None) -> str:
    """Return the small description with another value of a key, or without it."""
    data = tomllib.loads(EVERY)
    *tables, last = key.replace("NAME", "cpu").split(".")
    table = data
    for name in tables:
        table = data[name.partition("[")[0]][0] if name in LISTS else table.setdefault(name, {})
    table.pop(last, None)
    if value is not None:
        table[last] = value
    return "\n".join(lines_of(data))


def lines_of(data: dict[str, Any], at: str = "") -> list[str]:
    tables = {k: v for k, v in data.items() if isinstance(v, dict)}
    lists = {k: v for k, v in data.items() if isinstance(v, list) and isinstance(v[0], dict)}
    found = [f"{k} = {json.dumps(v)}" for k, v in data.items() if k not in tables and k not in lists]
    for key, table in tables.items():
        found += [f"[{at}{key}]", *lines_of(table, f"{at}{key}.")]
    for key, entries in lists.items():
        found += [line for entry in entries for line in (f"[[{at}{key}]]", *lines_of(entry))]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_the_table_of_keys_is_that_of_the_reader(row: Row, tmp_path: Path) -> None:
    """Keys are known, defaults are those of files that leave them out, and needed keys are named."""
    whole = device_of(tmp_path, EVERY)
    if row.default is NEEDED:
        with pytest.raises(BadDevice) as caught:
            device_of(tmp_path, changed(row.key))
        assert caught.value.fields["key"] == row.key.replace("[i]", "[0]").replace("NAME", "cpu")
        return
    left_out = device_of(tmp_path, changed(row.key))
    default = {"about": "tiny", "cores.NAME.memories": {}}.get(row.key, row.default)
    if default not in ((), {}) and default != math.inf:
        assert vars(device_of(tmp_path, changed(row.key, default))) == vars(left_out)
    assert vars(left_out) == vars(whole) or row.key == "cores.NAME.memories"
    with pytest.raises(BadDevice):
        device_of(tmp_path, changed(f"{row.key}_", 1))


def test_the_table_has_the_keys_of_costs(tmp_path: Path) -> None:
    keys = [row.key.rpartition(".")[2] for row in rows() if row.key.startswith("costs.")]
    numbers = [f"{key} = {i}" for i, key in enumerate(keys) if key not in ("wide", "transposed")]
    text = "\n".join(["[costs.matmul]", *numbers, "wide = { columns = 9, start = 1 }"])
    cost = device_of(tmp_path, f"{EVERY}\n{text}\ntransposed = {{ start = 2 }}").costs["matmul"]
    assert [getattr(cost, key) for key in keys[:-2]] == list(range(len(keys) - 2))
    assert cost.wide == (9, InstructionCost(1)) and cost.transposed == InstructionCost(2)


@pytest.mark.parametrize("name", preset_names())
def test_presets_name_the_source_of_each_group_of_figures(name: str) -> None:
    device = get_device(name)
    for key in (
        "cores",
        "clock_ghz",
        "transfers",
        "gm.rate",
        "l2.size",
        "dispatchers.generate",
        "host.latency",
    ):
        assert device.sources[key].split(":")[0] in (
            "published",
            "assumption",
            "unknown",
            "specification",
            "specification 000",
            "specification 002",
            "published model of A2/A3",
            "measured by others",
        ), key


@pytest.mark.parametrize("name", sorted(path.stem for path in (PRESETS / "costs").glob("*.toml")))
def test_every_instruction_has_a_cost_in_every_table(name: str) -> None:
    costs = cost_table(name)
    assert set(costs) == set(TABLE)
    moves = {
        name for name, row in TABLE.items() if row.form in (Form.LOAD, Form.STORE, Form.GATHER, Form.SCATTER)
    }
    widths = Widths()
    free = {
        name
        for name, cost in costs.items()
        if cost.of_vector(16, 64, 4, widths) + cost.of_product(16, 16, 16, 2, widths) <= 1
    }
    assert free == moves  # what moves data costs its transfers


def test_an_unknown_preset_is_an_error_with_advice() -> None:
    with pytest.raises(UnknownDevice, match="did you mean `ascend_910b`"):
        get_device("ascend_910")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"clock_ghz": 0}, "clock_ghz"),
        ({"gm_rate": -1}, "gm_rate"),
        ({"gm_rate": "x"}, "gm_rate"),
        ({"gm_core_rate": math.nan}, "gm_core_rate"),
        ({"name": 3}, "name"),
        ({"cores": ()}, "cores"),
        ({"l2": Cache(size=-1)}, "l2.size"),
        ({"dispatchers": Dispatchers(0)}, "dispatchers.count"),
        ({"dispatchers": Dispatchers(1, generate=-1)}, "dispatchers.generate"),
    ],
)
def test_figures_that_python_code_replaces_are_checked(change: dict[str, Any], key: str) -> None:
    device = get_device("ascend_910b")
    assert get_device(replace(device, gm_rate=1000)).gm_rate == 1000
    with pytest.raises(BadDevice) as caught:
        get_device(replace(device, **change))
    assert f"`{key}` of the device" in str(caught.value)


@pytest.mark.parametrize("name", [*preset_names()])
def test_presets_pass_the_checks_of_devices(name: str) -> None:
    assert check_device(get_device(name)) is get_device(name)


def test_what_is_not_a_device_is_refused(tmp_path: Path) -> None:
    for other in (3, [], object()):
        with pytest.raises(WrongValue, match="the name of a device"):
            get_device(other)  # pyright: ignore[reportArgumentType]
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    a.write_text('base = "b.toml"')
    b.write_text('base = "a.toml"')
    with pytest.raises(BadDevice, match="not based on itself"):
        get_device(a)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("clock_ghz = 1.0", "clock_ghz = -1.0"), "clock_ghz"),
        (("clock_ghz = 1.0", 'clock_ghz = "fast"'), "clock_ghz"),
        (("clock_ghz = 1.0", "clock_ghz = nan"), "clock_ghz"),
        (("rate = 16", "rate = 0"), "gm.rate"),
        (("rate = 8", "rate = -8"), "transfers[0].rate"),
        (("count = 2", "count = 0"), "cores.cpu.count"),
        (("count = 2", "count = true"), "cores.cpu.count"),
        (('"vector", "cube"]', '"vector", "brain"]'), "cores.cpu.units"),
        (('to = "ub"', 'to = "ubb"'), "transfers[0].to"),
        (('pipe = "mte2"', 'pipe = "mte9"'), "transfers[0].pipe"),
        (("ub = 1024", "ub = -1"), "cores.cpu.memories.ub"),
        (("[gm]", "[gm]\nspeed = 1"), "gm.speed"),
        (("[gm]", "[l3]\nsize = 1\n[gm]"), "l3"),
        (("[gm]", "[groups]\nbig = 1\n[gm]"), "groups.big"),
        (('name = "tiny"\n', ""), "name"),
        (("clock_ghz = 1.0", 'clock_ghz = 1.0\ncosts = "none"'), "costs"),
        (("clock_ghz = 1.0", "clock_ghz = 1.0\ncosts.plus.start = 1"), "costs"),
        (("clock_ghz = 1.0", "clock_ghz = 1.0\ncosts.add.begin = 1"), "costs.add.begin"),
        (("clock_ghz = 1.0", 'clock_ghz = 1.0\nbase = "none"'), None),
        (("clock_ghz = 1.0", "clock_ghz = "), "the file"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_key(
    change: tuple[str, str], key: str | None, tmp_path: Path
) -> None:
    with pytest.raises((BadDevice, UnknownDevice)) as caught:
        device_of(tmp_path, TINY.replace(*change))
    assert key is None or caught.value.fields["key"] == key


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadDevice, match="the file"):
        get_device(tmp_path / "none.toml")
