"""Instructions on whole tiles: matrix products, transposes, and calls of tile functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import Instr
from pto_wsp.ir.scalar import Expr
from pto_wsp.isa.forms import ADDS_ONTO, Form, factors
from pto_wsp.isa.meaning import OTHER_DEPTH, PART_OF_BLOCK
from pto_wsp.isa.table import TABLE
from pto_wsp.targets.c_style.plan import Alone
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name
from pto_wsp.targets.cpu.code import KernelCode
from pto_wsp.targets.cpu.memory import can_stream, matmul_vectors, product_stride, row_stride
from pto_wsp.targets.cpu.parts import (
    integer_product,
    packs,
    panel_product,
    quantised_product,
    stream_product,
    tile_product,
    turns,
)
from pto_wsp.targets.cpu.templates import CallTemplate
from pto_wsp.types.quantised import FORMATS, rounded_cols
from pto_wsp.types.tile import TileType

MOST_BLOCK_ROWS = 8
"""Rows of the largest block of a product: tiles with more of them share its code."""


def write_transpose(code: KernelCode, node: Alone, instr: Instr) -> None:
    """Write a transpose; onto itself it goes through memory of its own."""
    dst, source = tile_name(instr.dst), tile_name(instr.tiles[0])
    storage, stride = code.storage(instr.dst), row_stride(code.types[instr.dst], code.lanes)
    code.parts.add(turns(storage))
    turned = code.extra(node, "result", storage)
    if turned is None:
        code.result(node.step, instr)
        code.out.line(f"transpose({dst}.data, {stride}, {source});")
        return
    code.out.line(f"transpose({turned}, {stride}, {source});")
    whole = f"Tile<{storage}>{{{turned}, {stride}, {source}.cols, {source}.rows}}"
    code.out.line(f"{dst} = copy({whole}, {code.buffer(instr.dst)});")


def write_call(code: KernelCode, node: Alone, instr: Instr, call: CallTemplate) -> None:
    """Write a call of a tile function; onto an operand it goes through memory of its own."""
    dst, storage = tile_name(instr.dst), code.storage(instr.dst)
    own = code.extra(node, "result", storage)
    if own is None:
        code.result(node.step, instr)
        made = dst
    else:
        made = code.name("made")
        stride = row_stride(code.types[instr.dst], code.lanes)
        extents = code.result_extents(node.step, instr)
        code.out.line(f"const Tile<{storage}> {made}{{{own}, {stride}, {extents}}};")
    attributes = [_argument(code, instr, name) for name in call.arguments]
    arguments = [made, *map(tile_name, instr.tiles), *attributes]
    arguments += [code.scalar_operand(scalar, instr) for scalar in instr.scalars]
    if call.needs_spare:
        arguments.append(str(code.extra(node, "spare", storage)))
    code.call(f"unchecked::{call.function}({', '.join(arguments)})", call.failure, instr, made, attributes)
    if own is not None:
        code.out.line(f"{dst} = copy({made}, {code.buffer(instr.dst)});")


def _argument(code: KernelCode, instr: Instr, name: str) -> str:
    """Return an attribute as a C++ argument; 0 where it is absent."""
    value = instr.attr(name)
    return code.value(value, instr.loc) if isinstance(value, Expr) else str(value or 0)


def write_matmul(code: KernelCode, node: Alone, instr: Instr) -> None:
    """Write a product; onto an operand, or into one column, it goes through memory of its own."""
    form = TABLE[instr.op].form
    a, b = factors(form, instr.tiles)
    left, right = tile_name(a), tile_name(b)
    trans_a, trans_b = bool(instr.attr("trans_a")), bool(instr.attr("trans_b"))
    with _sum(code, node, instr, f"{left}.{FIELDS[trans_a]}, {right}.{FIELDS[not trans_b]}"):
        if form is Form.MATMUL_BIAS:
            code.out.line(f"repeat(sum, {tile_name(instr.tiles[2])});")
        _write_product(code, node, instr, str(form is not Form.MATMUL).lower())


def write_matmul_quantised(code: KernelCode, node: Alone, instr: Instr) -> None:
    """Write a product with blocks of a quantised matrix, which is added to a sum."""
    acc, x, w = map(tile_name, instr.tiles)
    form, dst = FORMATS[str(instr.attr("format"))], code.types[instr.dst]
    left, value = _left_operand(code, instr.tiles[1], trans_a=False)
    level = {"": 0, "u1": 1, "i1": -1}[form.level]
    numbers = (form.bits, form.zero, form.group, form.block, int(form.has_minimum), level)
    function = f"matmul_quantised<Format<{', '.join(map(str, numbers))}>, {matmul_vectors(dst, code.lanes)}>"
    most = form.column_bytes
    wrong = f"{w}.cols % {most} != 0 || {acc}.cols > {w}.cols / {most}"
    code.check(wrong, CheckText(PART_OF_BLOCK), instr.loc)
    is_float = code.types[instr.tiles[1]].dtype.is_float
    depth = form.block if is_float else rounded_cols(form.block)
    code.check(f"{x}.cols != {w}.rows * {depth}", CheckText(OTHER_DEPTH), instr.loc)
    code.parts.add(quantised_product(function, left))
    with _sum(code, node, instr, f"{acc}.rows, {acc}.cols"):
        code.out.line(f"{function}(sum, {value}, {w}, {code.extra(node, 'panel', 'float') or 'nullptr'});")


@contextmanager
def _sum(code: KernelCode, node: Alone, instr: Instr, extents: str) -> Iterator[None]:
    """Write the tile `sum` that a product makes or adds to before what is written inside, and its end."""
    dst, storage = code.types[instr.dst], code.storage(instr.dst)
    own = code.extra(node, "result", storage)
    place = code.buffer(instr.dst) if own is None else f"{own}, {product_stride(dst, code.lanes)}"
    is_elsewhere = own is not None or not code.is_same_memory(instr.tiles[0], instr.dst)
    code.out.line("{")
    with code.out.indented():
        code.out.line(f"const Tile<{storage}> sum{{{place}, {extents}}};")
        if TABLE[instr.op].form in ADDS_ONTO and is_elsewhere:
            code.out.line(f"copy({tile_name(instr.tiles[0])}, sum.data, sum.stride);")
        yield
        copied = f"copy(sum, {code.buffer(instr.dst)})"
        code.out.line(f"{tile_name(instr.dst)} = {'sum' if own is None else copied};")
    code.out.line("}")


def _write_product(code: KernelCode, node: Alone, instr: Instr, adds: str) -> None:
    """Write the call of a product whose result is `sum`, and what makes its right operand."""
    a, b = factors(TABLE[instr.op].form, instr.tiles)
    dst, trans_b = code.types[instr.dst], bool(instr.attr("trans_b"))
    left, value = _left_operand(code, a, trans_a=bool(instr.attr("trans_a")))
    right, storage = tile_name(b), code.storage(b)
    vectors = matmul_vectors(dst, code.lanes)
    function = f"matmul<{vectors}, {min(dst.rows, MOST_BLOCK_ROWS)}>"
    ahead = code.ahead(instr)
    if dst.dtype.is_integer:
        function = f"matmul_integers<{vectors}>"
        code.parts.add(integer_product(function, left))
        right = _write_turned(code, node, b) if trans_b else right
        code.out.line(f"{function}(sum, {value}, {right}, {adds}, {code.extra(node, 'panel', 'uint32_t')});")
    elif b in code.memory.windows and can_stream(instr, code.types):
        function = f"{'stream_dots' if trans_b else 'stream_matmul'}<{_few_rows(dst.rows)}>"
        code.parts.add(stream_product(function, left, storage))
        code.out.line(f"{function}(sum, {value}, {right}, {adds}, {ahead});")
    elif b in code.memory.windows:
        pack = f"{'pack_turned' if trans_b else 'pack'}<{vectors}>"
        code.parts |= {packs(pack, storage), panel_product(function, left)}
        panels = f"{pack}({right}, {code.extra(node, 'right', 'float')})"
        code.out.line(f"{function}(sum, {value}, {panels}, {adds}, {ahead});")
    else:
        padding = 0 if b in code.memory.in_place and not trans_b else 2 * code.lanes
        has_ahead = code.has_ahead(instr)
        code.parts.add(tile_product(function, left, storage, has_ahead=has_ahead))
        if trans_b:
            right = _write_turned(code, node, b)
        arguments = [right, adds, str(padding), str(code.extra(node, "panel", "float"))]
        code.out.line(f"{function}(sum, {value}, {', '.join(arguments + [ahead] * has_ahead)});")


def _few_rows(rows: int) -> int:
    """Return which of the numbers of rows that `for_few_rows` of tile/stream.hpp tells apart is enough."""
    return next(most for most in (1, 4, 8) if rows <= most)


def _left_operand(code: KernelCode, tile: str, *, trans_a: bool) -> tuple[str, str]:
    """Return the type and the value of a left operand."""
    name, storage = tile_name(tile), code.storage(tile)
    if trans_a:
        kind = f"Strided<{storage}>"
        return kind, f"{kind}{{{name}.data, 1, {name}.stride}}"
    kind = f"Strided<{storage}, One>"
    return kind, f"{kind}{{{name}.data, {name}.stride, {{}}}}"


def _write_turned(code: KernelCode, node: Alone, tile: str) -> str:
    """Write the transpose of a right operand; return its name."""
    storage, kind = code.storage(tile), code.types[tile]
    stride = row_stride(TileType(kind.cols, kind.rows, kind.dtype), code.lanes)
    source = tile_name(tile)
    place = code.extra(node, "right", storage)
    code.out.line(f"const Tile<{storage}> turned{{{place}, {stride}, {source}.cols, {source}.rows}};")
    code.parts.add(turns(storage))
    code.out.line(f"transpose(turned.data, turned.stride, {source});")
    return "turned"
