"""The stub of the builder's methods for instructions, from the tables."""

from __future__ import annotations

from textwrap import wrap

from pto_wsp.builder.operands import methods
from pto_wsp.isa import Form, Instruction
from pto_wsp.isa.attributes import CONSTANTS, EXTENTS, PLACES
from pto_wsp.isa.compositions import COMPOSITIONS

HEAD = '''\
"""The methods of a builder that follow from the tables. `make docs` writes this file."""
# ruff: noqa

from typing import Self

from pto_wsp.builder.names import CompareMode
from pto_wsp.builder.steps import Operand

class InstructionMethods:
    """A method for each instruction on tiles, called by its row in the table: `add(dst, a, b)`."""
'''

MAX_WIDTH = 110


def builder_stub() -> str:
    """Return the text of `pto_wsp/builder/instruction_methods.pyi`."""
    found = [_of_row(name, row) for name, row in methods().items()]
    for name, composed in COMPOSITIONS.items():
        if not composed.stores:
            options = ['rmode: str = ""'] if composed.rounds else []
            found.append(_method(name, [*composed.operands], options, [], composed.doc))
    return HEAD + "\n" + "".join(found)


def _of_row(name: str, row: Instruction) -> str:
    tiles = (
        ["a", "b", "c", "d"][: row.form.num_tiles] if row.form.num_tiles > 1 else ["x"] * row.form.num_tiles
    )
    scalars = ["value", "other"][: row.form.num_scalars]
    options = [_constant(row.form, option) for option in CONSTANTS.get(row.form, {})]
    options += [f"{place}: Operand = 0" for place in PLACES.get(row.form, ())]
    extents = [f"{extent}: Operand = ..." for extent in EXTENTS.get(row.form, ())]
    return _method(name, tiles + scalars, options, extents, row.doc)


def _constant(form: Form, name: str) -> str:
    kind, default = CONSTANTS[form][name]
    if name == "mode":
        return "mode: CompareMode | str"
    if default is None:
        return f"{name}: {kind.__name__}"
    value = '""' if default == "" else repr(default)
    return f"{name}: {kind.__name__} = {value}"


def _method(name: str, operands: list[str], options: list[str], extents: list[str], doc: str) -> str:
    parts = ["self", "dst: str", *(f"{operand}: Operand" for operand in operands), "/", *options]
    parts += ["*", *extents] if extents else []
    head = f"    def {name}({', '.join(parts)}) -> Self:\n"
    if len(head) > MAX_WIDTH + 1:
        head = f"    def {name}(\n        {', '.join(parts)}\n    ) -> Self:\n"
    if max(map(len, head.splitlines())) > MAX_WIDTH:
        head = "\n        ".join([f"    def {name}(", *(f"{part}," for part in parts)]) + "\n    ) -> Self:\n"
    text = "\n        ".join(wrap(doc, MAX_WIDTH - len('        """"""')))
    return f'{head}        """{text}"""\n'
