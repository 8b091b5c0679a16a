"""C++17 as kernels of Ascend are written in it, with the functions of `ascend.hpp`."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.scalar import Element, TileElement
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.c_style.spelling import Spelling
from pto_wsp.targets.cpu.spelling import CppSpelling

STORAGE = {
    "f32": "float",
    "f16": "half",
    "bf16": "bfloat16_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "b1": "uint8_t",
}
"""Types of elements, as the library names them; of b1, the type of packed bits."""


class AscendSpelling(CppSpelling):
    """C++17 that the vendor's compiler reads, too."""

    functions = "scalar_"
    view = "const View&"
    stop = ""
    storage = STORAGE

    def __init__(self, generation: Generation) -> None:
        self.target = generation.name  # pyright: ignore[reportAttributeAccessIssue]

    def cast(self, kind: str, text: str) -> str:
        """Return a value converted to the type `kind`; pointers point to global memory."""
        return f"({'GLOBAL ' if kind.endswith('*') else ''}{kind})({text})"

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return a call that reads an element of a view; elements of tiles are refused."""
        if isinstance(expr, TileElement):
            return Spelling.element(self, expr, kind, places, failed)
        return super().element(expr, kind, places, failed)
