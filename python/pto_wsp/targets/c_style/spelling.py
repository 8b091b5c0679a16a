"""How a language writes names, types and values: where C, C++ and their relatives differ."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import I64_MIN, Element, TileElement, Value
from pto_wsp.types.dtype import DType

FIELDS = ("rows", "cols")
"""The members of a tile and of a window that hold their valid extents."""

INTEGERS: dict[str, str] = {
    f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)
}
"""Types of integer elements."""


def mangle(prefix: str, name: str) -> str:
    """Return a name for a Python identifier: different ones for different prefixes and names."""
    return f"{prefix}_{name}" if name.isascii() else f"{prefix}u_{name.encode().hex()}"


def function_name(kernel: KernelFunction) -> str:
    """Return the name of a kernel's function."""
    return mangle("k", kernel.name)


def tile_name(name: str) -> str:
    """Return the variable of a tile."""
    return mangle("t", name)


def view_name(name: str) -> str:
    """Return the variable of a tensor parameter."""
    return mangle("p", name)


def scalar_name(name: str) -> str:
    """Return the variable of a scalar."""
    return mangle("s", name)


def scalar_type(dtype: DType) -> str:
    """Return the type of a scalar."""
    return "float" if dtype.is_float else "bool" if dtype.kind == "b" else "int64_t"


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


class Spelling(ABC):
    """What a language writes its own way.

    Attributes:
        target: name of the target, for errors.
        unused: what marks a variable that may not be used.
        view: the type of a parameter's view, initialised from an element of `views`.
        zero: the initialiser of a variable without a value.
        null: the null pointer.
        stop: the statement at the head of a loop that ends the kernel when its run shall end; empty if there
            is none.
        storage: type of an element in memory, by the name of its dtype. Tiles of other types are refused.
    """

    target: ClassVar[str]
    unused: ClassVar[str] = ""
    view: ClassVar[str] = "const View"
    zero: ClassVar[str] = " = {0}"
    null: ClassVar[str] = "0"
    stop: ClassVar[str] = ""
    storage: ClassVar[dict[str, str]]

    @abstractmethod
    def literal(self, value: Value, dtype: DType) -> str:
        """Return a literal of the type of a scalar."""

    @abstractmethod
    def cast(self, kind: str, text: str) -> str:
        """Return a value converted to the type `kind`."""

    @abstractmethod
    def call(self, op: str, arguments: Sequence[str], failed: str) -> str:
        """Return the value of a scalar operation without an operator.

        Args:
            op: of `ir.scalar`: `add`, `floordiv`, `min`, `to_i64` and so on.
            arguments: its operands.
            failed: the `bool` that becomes true where the operation has no value; empty for `min` and `max`.
        """

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return the element of a view or tile at `places`; `kind` is the type of a view's elements.

        The `bool` called `failed` becomes true where it lies outside. By default, elements are refused.

        Raises:
            UnsupportedByTarget: the target reads no elements.
        """
        what = f"the element of `{expr.name}` in an expression"
        raise UnsupportedByTarget(target=self.target, what=what, reason="", loc=expr.loc)

    def failed(self, number: int, values: Sequence[str]) -> str:
        """Return the value that a kernel returns after a failed check. By default, no values are kept."""
        return str(number)

    def stop_of(self, start: str, extent: str) -> str:
        """Return where a range ends, for a check that has failed: the sum may be beyond 64 bits."""
        return start

    @abstractmethod
    def counter(self, name: str, start: str, stop: str, step: int) -> str:
        """Return the three parts of a `for` over a counter `name`, whose member `value` is the index.

        A counter does not overflow where the next index would.
        """

    @abstractmethod
    def window(self, name: str, storage: str, fields: Sequence[str]) -> str:
        """Return the declaration of a window.

        Args:
            name: the constant that is declared.
            storage: type of its elements.
            fields: pointer, row stride, column stride, row list or null, rows, columns; of an output also
                whether stores go past the caches. Strides count elements.
        """
