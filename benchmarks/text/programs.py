"""Texts that the case measures."""

from __future__ import annotations

import random

KERNELS = 100
LINES = 100
"""Instructions in each kernel: 10,000 in all."""

_TILE, _COLUMN = "!pto.tile<64x128xf32>", "!pto.tile<64x1xf32>"
_INSTRUCTIONS = (
    f"%c = tadd %a, %b : {_TILE}",
    f"%b = texp %c : {_TILE}",
    f"%c = tmuls %b, %0.5 : {_TILE}, f32",
    f"%c = tmuls %b, %scale : {_TILE}, f32",
    f"%m = trowsum %c : {_TILE} -> {_COLUMN}",
    f"%b = trowexpanddiv %c, %m : {_TILE}, {_COLUMN} -> {_TILE}",
    f"%a = tmax %a, %b : {_TILE}",
    f"%a = tload %x[:, :] : {_TILE}",
    "tstore %c, %z[:, :]",
)


def kernel(number: int) -> str:
    """Return a kernel of LINES instructions."""
    draw = random.Random(number)
    lines = [f"%a = tload %x[:, :] : {_TILE}", f"%b = tload %y[:, :] : {_TILE}"]
    lines += [_INSTRUCTIONS[0], _INSTRUCTIONS[4]]
    lines += [draw.choice(_INSTRUCTIONS) for _ in range(LINES - 5)]
    lines += ["tstore %c, %z[:, :]"]
    memref = "!pto.memref<gm,64x128,f32>"
    params = f"%x: {memref} {{in, tile}}, %y: {memref} {{in, tile}}, %z: {memref} {{out, tile}}, %scale: f32"
    tiles = [f"%{name} = alloc_tile : {_TILE}" for name in "abc"] + [f"%m = alloc_tile : {_COLUMN}"]
    body = ["// Tile Declarations", *tiles, "// Instructions", *lines, "return"]
    inner = "\n".join("  " + line for line in body)
    head = "// Function Type: InCore (tile-level computation)"
    return f"{head}\nfunc @k{number}({params}) {{\n{inner}\n}}\n"


def text_of_10k_instructions() -> str:
    """Return a module as `print(module)` writes it."""
    names = ", ".join(f"k{number}" for number in range(KERNELS))
    head = f"// PTO Module: many\n// Functions: {names}\n"
    return head + "".join("\n" + kernel(number) for number in range(KERNELS))


GRAMMAR = r"""
start: _NEWLINE? line*
line: (head | declaration | load | store | instruction | "return" | "}") _NEWLINE
head: "func" FUNCTION "(" param ("," param)* ")" "{"
param: NAME ":" (MEMREF flags | WORD)
flags: "{" WORD ("," WORD)* "}"
declaration: NAME "=" "alloc_tile" ":" TILE
load: NAME "=" "tload" NAME region ":" TILE
store: "tstore" NAME "," NAME region
region: "[" ":" ("," ":")* "]"
instruction: NAME "=" WORD operand ("," operand)* ":" type ("," type)* ("->" TILE)?
operand: NAME | LITERAL
type: TILE | WORD
FUNCTION: "@" /[a-z]\w*/
NAME: /%[a-z]\w*/
LITERAL: /%[0-9][0-9.e+-]*/
TILE: /!pto\.tile<[^>]*>/
MEMREF: /!pto\.memref<[^>]*>/
WORD: /[a-z][\w.]*/
_NEWLINE: /(\s*(\/\/[^\n]*)?\n)+/
%ignore /[ \t]+/
"""
"""The lines above for lark (LALR): a tree of them, which nothing checks."""
