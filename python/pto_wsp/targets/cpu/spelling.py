"""C++ as generated kernels are written in it, with the functions of include/pto/wsp/tile/."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from pto_wsp.ir.scalar import I64_MIN, Element, TileElement, Value
from pto_wsp.targets.c_style.spelling import Spelling, tile_name, view_name
from pto_wsp.targets.cpu.templates import STORAGE
from pto_wsp.types.dtype import DType


def literal(value: Value, dtype: DType) -> str:
    """Return a literal of the C++ type of a scalar."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if not dtype.is_float:
        number = int(value)
        return "INT64_MIN" if number == I64_MIN else f"int64_t{{{number}}}"
    rounded = float(np.float32(value))
    if math.isnan(rounded):
        return '__builtin_nanf("")'
    if math.isinf(rounded):
        return "-__builtin_inff()" if rounded < 0 else "__builtin_inff()"
    return rounded.hex() + "f"


def c_string(text: str) -> str:
    """Return a C++ string literal, in which quotes, backslashes and control characters are escaped."""
    plain = (f"\\{b:03o}" if b in b'"\\' or b < 32 or b == 127 else chr(b) for b in text.encode())
    return '"' + "".join(plain).encode("latin-1").decode() + '"'


class CppSpelling(Spelling):
    """C++17 with the tile library.

    Attributes:
        functions: what the names of scalar operations begin with.
    """

    target = "cpu"
    functions: ClassVar[str] = "scalar::"
    unused = "[[maybe_unused]] "
    view = "const View&"
    zero = "{}"
    null = "nullptr"
    stop = "if (must_stop(context)) return kStopped;"
    storage = STORAGE

    def literal(self, value: Value, dtype: DType) -> str:
        """Return a literal of the type of a scalar."""
        return literal(value, dtype)

    def cast(self, kind: str, text: str) -> str:
        """Return a value converted to the type `kind`."""
        return f"static_cast<{kind}>({text})"

    def call(self, op: str, arguments: Sequence[str], failed: str) -> str:
        """Return a call of a function of scalar.hpp."""
        return f"{self.functions}{op}({', '.join([*arguments, failed] if failed else arguments)})"

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return a call of `element` of scalar.hpp."""
        if isinstance(expr, TileElement):
            return f"{self.functions}element({', '.join([tile_name(expr.name), failed, *places])})"
        return f"{self.functions}element<{kind}>({', '.join([view_name(expr.name), failed, *places])})"

    def failed(self, number: int, values: Sequence[str]) -> str:
        """Return a call of `failed` of monitor.hpp, which keeps the values."""
        return f"failed({', '.join(['context', str(number), *values])})" if values else str(number)

    def stop_of(self, start: str, extent: str) -> str:
        """Return a call of `stop_of` of monitor.hpp."""
        return f"stop_of({start}, {extent})"

    def counter(self, name: str, start: str, stop: str, step: int) -> str:
        """Return the three parts of a `for` over a `Counter`."""
        return f"Counter {name}{{{start}, {stop}, {step}}}; {name}.more(); {name}.advance()"

    def window(self, name: str, storage: str, fields: Sequence[str]) -> str:
        """Return the declaration of a `Window`."""
        return f"const Window<{storage}> {name}{{{', '.join(fields)}}};"
