"""Numbers that users give: checked against what they are for, never rounded or wrapped silently."""

from __future__ import annotations

import math

import numpy as np

from pto_wsp.errors import WrongValue
from pto_wsp.ir.scalar import I64_MAX, I64_MIN, round_f32
from pto_wsp.location import argument_location
from pto_wsp.types.dtype import DType, f32

F32_END = 2.0**128 - 2.0**103
"""The smallest number that f32 rounds to infinity."""


def integer(name: str, value: object, low: int, high: int) -> int:
    """Return an integer in [low, high].

    Raises:
        WrongValue: anything else.
    """
    if type(value) is int and low <= value <= high:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise _wrong(name, "an integer", type(value).__name__)
    if not low <= value <= high:
        raise _wrong(name, f"an integer in [{low}, {high}]", _shown(value))
    return int(value)


def number(name: str, value: object, dtype: DType) -> int | float:
    """Return a number as a scalar parameter of type `dtype` takes it, rounded where that is f32.

    Raises:
        WrongValue: the type has no such number.
    """
    if dtype.kind == "b":
        return _truth(name, value)
    if not dtype.is_float:
        bits = dtype.itemsize * 8
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.kind == "i" else (0, 2**bits - 1)
        return integer(name, value, max(low, I64_MIN), min(high, I64_MAX))
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise _wrong(name, "a number", type(value).__name__)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if F32_END <= abs(found) and not (isinstance(value, (float, np.floating)) and math.isinf(value)):
        raise _wrong(name, "a number that f32 can hold", _shown(value))
    return round_f32(found) if dtype is f32 else found


def _wrong(name: str, expected: str, found: object) -> WrongValue:
    return WrongValue(name=name, expected=expected, found=found, loc=argument_location(name))


def _truth(name: str, value: object) -> int:
    """Return a truth value as 0 or 1; a text or an array, which Python finds true, is none."""
    if not isinstance(value, (int, np.integer, np.bool_)) or value not in (0, 1):
        raise _wrong(name, "True or False", repr(value))
    return int(value)


def _shown(value: float | np.number) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return str(value)
