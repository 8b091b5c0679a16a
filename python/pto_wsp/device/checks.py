"""Checks of devices that Python code made, for example with `replace(device, gm_rate=...)`."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.device.model import Device
from pto_wsp.errors import BadDevice
from pto_wsp.location import caller_location

COUNTS = frozenset({"count", "records", "block", "vector", "rows", "cols", "inner"})
RATES = frozenset({"clock_ghz", "gm_rate", "gm_core_rate", "rate", "core_rate"})


def check_device(device: Device) -> Device:
    """Return a device whose numbers a simulation can use.

    Raises:
        BadDevice: a name is not a text, a count is not a positive integer, a rate is not positive, or
            another number is negative.
    """
    if not isinstance(device.name, str):
        _fail(device, "name", "a text", device.name)
    if not device.cores:
        _fail(device, "cores", "a kind of core", "none")
    for key, value in _numbers(device):
        field = key.rpartition(".")[2]
        number = -1 if isinstance(value, bool) or not isinstance(value, (int, float)) else value
        if field in COUNTS and not (isinstance(value, int) and number > 0):
            _fail(device, key, "a positive integer", value)
        if field in RATES and not number > 0:
            _fail(device, key, "a positive number", value)
        if not number >= 0:
            _fail(device, key, "a number that is not negative", value)
    return device


def _numbers(device: Device) -> Iterator[tuple[str, object]]:
    """Yield the path and the value of each number."""
    for key in ("clock_ghz", "gm_rate", "gm_core_rate"):
        yield key, getattr(device, key)
    parts = {"l2": device.l2, "widths": device.widths, "dispatchers": device.dispatchers, "host": device.host}
    for key, part in parts.items():
        for field, value in vars(part).items():
            yield f"{key}.{field}", value
    for kind in device.cores:
        yield f"cores.{kind.name}.count", kind.count
    for i, way in enumerate(device.transfers):
        yield f"transfers[{i}].rate", way.rate
        yield f"transfers[{i}].start", way.start
    for i, cache in enumerate(device.core_caches):
        yield f"core_caches[{i}].size", cache.size
        yield f"core_caches[{i}].rate", cache.rate


def _fail(device: Device, key: str, expected: str, found: object) -> None:
    about, text = f"`{device.name}`", str(found) if found == "none" else repr(found)
    raise BadDevice(device=about, key=key, expected=expected, found=text, loc=caller_location())
