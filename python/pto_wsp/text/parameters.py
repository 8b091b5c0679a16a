"""Parameters of functions in `.pto` text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from pto_wsp.errors import RepeatedText
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr
from pto_wsp.support.record import replace
from pto_wsp.text.expressions import read_dtype, read_expression, read_number, read_space
from pto_wsp.text.tokens import NAME, NUMBER, TYPE, WORD, Cursor, Token
from pto_wsp.text.workloads import scope_of_params
from pto_wsp.types.dtype import DType, b1, i64
from pto_wsp.types.space import LOCAL_SPACES, Space
from pto_wsp.types.tile import ScalarType, TensorType, TileType, ViewType

_MEMREF = re.compile(r"!pto\.memref<\s*(\w+)\s*,\s*(.*?)\s*(?:,\s*(\w+)\s*)?>")
_SIZE = re.compile(r'"([^"]*)"|([^"x]+)')


def read_params(cursor: Cursor, read_one: Callable[[Cursor, Token, str], None]) -> None:
    """Read a list of parameters, each up to its type by this function and the rest by `read_one`."""
    cursor.expect("(")
    seen: set[str] = set()
    while not cursor.accept(")"):
        if seen:
            cursor.expect(",")
        token = cursor.token
        name = cursor.name("a parameter")
        if name in seen:
            raise RepeatedText(kind="parameter", name=name, loc=cursor.place(token))
        seen.add(name)
        cursor.expect(":")
        read_one(cursor, token, name)


def read_kernel_params(cursor: Cursor) -> tuple[k.Param, ...]:
    """Read the parameters of a kernel."""
    found: list[k.Param] = []

    def read_one(cursor: Cursor, token: Token, name: str) -> None:
        if cursor.token.kind == WORD:
            kind = ScalarType(_dtype(cursor))
            found.append(k.Param(name, k.IN, kind, cursor.place(token)))
            return
        written = cursor.take(TYPE, "`!pto.memref<gm,shape,dtype>` or an element type")
        _, sizes, dtype = _memref(cursor, written, ())
        cursor.expect("{", "a memref of a kernel says its role: `{in}`, `{out}` or `{inout}`")
        role = cursor.word((k.IN, k.OUT, k.INOUT), "`in`, `out` or `inout`")
        is_tile = cursor.accept(",")
        if is_tile:
            cursor.expect("tile")
        cursor.expect("}")
        found.append(k.Param(name, role, _view(cursor, written, sizes, dtype, is_tile), cursor.place(token)))

    read_params(cursor, read_one)
    return tuple(found)


def _dtype(cursor: Cursor) -> DType:
    token = cursor.take(WORD, "an element type")
    return read_dtype(cursor, token, token.text)


def _memref(
    cursor: Cursor, token: Token, spaces: Sequence[Space]
) -> tuple[Space | None, list[int | str] | None, DType | None]:
    """Return the parts of a memref type: its memory, of `spaces` and `gm`, its sizes and its element type.

    Sizes are numbers, names, or `?`; they and the element type are None where the type says `...`.
    """
    found = _MEMREF.fullmatch(token.text)
    if found is None:
        cursor.fail("`!pto.memref<gm,shape,dtype>`", token=token)
    memory, shape, name = found.groups()
    is_global = memory == Space.GM.value
    space = None if is_global else read_space(cursor, token, memory, (Space.GM, *spaces))
    dtype = None if name is None else read_dtype(cursor, token, name)
    if shape == "...":
        return space, None, dtype
    if dtype is None:
        cursor.fail("`!pto.memref<gm,shape,dtype>`", token=token)
    return space, [_size(cursor, token, part) for part in _parts(cursor, token, shape)], dtype


def _parts(cursor: Cursor, token: Token, shape: str) -> list[str]:
    parts, at = [], 0
    while shape:
        found = _SIZE.match(shape, at)
        if found is None:
            cursor.fail('sizes like `64x"n"x?`', token=token)
        parts.append(found.group())
        at = found.end() + 1
        if at > len(shape):
            break
        if shape[at - 1] != "x":
            cursor.fail('sizes like `64x"n"x?`', token=token)
    return parts


def _size(cursor: Cursor, token: Token, text: str) -> int | str:
    if text == "?" or text[0] == '"':
        return text.strip('"')
    return cursor.integer_of(token, text)


def _view(
    cursor: Cursor, token: Token, sizes: list[int | str] | None, dtype: DType | None, is_tile: bool
) -> TileType | ViewType:
    if sizes is None or dtype is None:
        return ViewType(dtype, None)
    numbers = tuple(size if isinstance(size, int) else None for size in sizes)
    if any(isinstance(size, str) and size != "?" for size in sizes):
        cursor.fail("numbers and `?`: sizes have names in workloads only", token=token)
    if not is_tile:
        return ViewType(dtype, numbers)
    match numbers:
        case (int() as rows, int() as cols):
            return TileType(rows, cols, dtype)
        case _:
            cursor.fail("two numbers, as this is a tile", token=token)


def read_workload_params(cursor: Cursor) -> tuple[w.WorkloadParam, ...]:
    """Read the parameters of a workload."""
    found: list[w.WorkloadParam] = []
    values: list[tuple[int, Cursor]] = []

    def read_one(cursor: Cursor, token: Token, name: str) -> None:
        place = cursor.place(token)
        if cursor.token.kind == TYPE:
            found.append(_tensor(cursor, token, name))
            return
        kind = cursor.take(WORD, "`!pto.memref<...>`, `index`, `ragged<...>`, `sparse<...>` or a type")
        match kind.text:
            case "index":
                found.append(w.SizeParam(name, cursor.integer() if cursor.accept("=") else None, place))
            case "ragged":
                found.append(w.RaggedParam(name, _outer(cursor), place))
            case "sparse":
                found.append(w.SparseParam(name, _outer(cursor), place))
            case _:
                dtype = read_dtype(cursor, kind, kind.text)
                default = _default(cursor, dtype) if cursor.accept("=") else None
                found.append(w.ScalarParam(name, ScalarType(dtype), place, default=default))
        if cursor.at(":=") and kind.text not in ("ragged", "sparse"):
            cursor.advance()
            values.append((len(found) - 1, cursor.part()))

    read_params(cursor, read_one)
    return _with_values(found, values)


def _with_values(
    params: list[w.WorkloadParam], values: Iterable[tuple[int, Cursor]]
) -> tuple[w.WorkloadParam, ...]:
    """Read what parameters follow from, now that all are known."""
    scope = scope_of_params(params)
    found = list(params)
    for number, cursor in values:
        param = found[number]
        value: Expr = read_expression(cursor, scope)
        cursor.end()
        if isinstance(param, w.SizeParam):
            found[number] = replace(param, value=value)
        elif isinstance(param, w.ScalarParam):
            found[number] = replace(param, value=value)
    return tuple(found)


def _default(cursor: Cursor, dtype: DType) -> int | float:
    """Read a number of a type."""
    if dtype is b1:
        return cursor.word(("true", "false"), "`true` or `false`") == "true"
    minus = cursor.advance() if cursor.at("-") else None
    token = cursor.token
    if token.kind != NUMBER and token.text not in ("inf", "nan"):
        cursor.fail("a number")
    found = read_number(cursor, minus)
    if dtype.is_integer and found.dtype is not i64:
        cursor.fail(f"an integer, as the scalar is {dtype}", token=token)
    return found.value


def _outer(cursor: Cursor) -> str:
    cursor.expect("<")
    name = cursor.take(NAME, "the size that counts the rows").text[1:]
    cursor.expect(">")
    return name


def _tensor(cursor: Cursor, token: Token, name: str) -> w.TensorParam:
    written = cursor.advance()
    space, sizes, dtype = _memref(cursor, written, LOCAL_SPACES)
    if sizes is None or dtype is None or "?" in sizes:
        cursor.fail('sizes: numbers, or names in quotes like `"n"x128`', token=written)
    kind = TensorType(dtype, tuple(sizes), space)
    flags = _flags(cursor) if cursor.accept("{") else _Flags()
    return w.TensorParam(name, kind, cursor.place(token), **flags)


class _Flags(TypedDict, total=False):
    is_local: bool
    is_distinct: bool
    columns: int
    axis: str
    channel: w.Ring


_FLAGS = {
    "local": "is_local",
    "distinct": "is_distinct",
    "columns": "columns",
    "offsets": "axis",
    "depth": "channel",
}
"""Fields of a tensor by the flag that sets them."""


def _flags(cursor: Cursor) -> _Flags:
    """Read the flags of a tensor, with their values."""
    found: _Flags = {}
    while True:
        token = cursor.token
        flag = cursor.word(_FLAGS, "`local`, `distinct`, `columns = n`, `offsets = %axis` or `depth = n`")
        if _FLAGS[flag] in found:
            raise RepeatedText(kind="flag", name=flag, loc=cursor.place(token))
        match flag:
            case "columns":
                cursor.expect("=")
                found["columns"] = cursor.integer()
            case "offsets":
                cursor.expect("=")
                found["axis"] = cursor.take(NAME, "the axis whose rows the offsets bound").text[1:]
            case "depth":
                found["channel"] = _channel(cursor)
            case "distinct":
                found["is_distinct"] = True
            case _:
                found["is_local"] = True
        if cursor.accept("}"):
            return found
        cursor.expect(",")


def _channel(cursor: Cursor) -> w.Ring:
    """Read what makes a tensor the ring of a channel, after `depth`."""
    cursor.expect("=")
    depth = cursor.integer("the depth of the channel")
    cursor.expect(",")
    cursor.expect("latency")
    cursor.expect("=")
    is_number = cursor.kind != NAME
    latency = cursor.integer("the latency in cycles") if is_number else cursor.take(NAME, "a size").text[1:]
    scalars: list[str] = []
    merge = w.TURNS
    while cursor.accept(","):
        word = cursor.word(("scalars", "merge"), "`scalars = [...]` or `merge = ...`")
        cursor.expect("=")
        if word == "merge":
            merge = cursor.word(w.MERGES, "`turns`, `time` or `arrival`")
            break
        cursor.expect("[")
        while not cursor.accept("]"):
            if scalars:
                cursor.expect(",")
            scalars.append(cursor.take(WORD, "the name of a scalar").text)
    return w.Ring(depth, tuple(scalars), latency, merge)
