"""Kernels in numpy: the kernel oracle.

Exact rows compute in the type that targets compute in (f32 for f16 and bf16), inexact rows in f64; every
result is rounded to its tile's type. Reads and writes are checked as on every target.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np

from pto_wsp.errors import BadExpression, KernelFailed, NoneKernelBody
from pto_wsp.interp.printing import printed_text
from pto_wsp.interp.references import run_reference
from pto_wsp.ir import check_texts
from pto_wsp.ir import kernel as k
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.evaluate import element_place, evaluate, read_element
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import Expr, Value
from pto_wsp.isa.forms import result_valid, valid_pairs_that_agree
from pto_wsp.isa.meaning import Undefined
from pto_wsp.isa.table import TABLE, Instruction
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, f32
from pto_wsp.types.tile import ScalarType, TileType

Array = np.ndarray


def run_kernel(
    kernel: k.KernelFunction,
    args: Sequence[Array | Value],
    poll: Callable[[], None] = lambda: None,
    task: int = 0,
    write: Callable[[str], object] | None = None,
) -> None:
    """Run `kernel` on numpy views and scalars, one per parameter in order; outputs are written in place.

    Args:
        kernel: with a body, or C++ with a reference.
        args: one per parameter.
        poll: called in each iteration of a loop; an exception in it ends the kernel.
        task: number of the task, which what the kernel prints names.
        write: takes what the kernel prints; `sys.stdout.write` without it.

    Raises:
        KernelFailed: a check of the kernel failed; what it had stored before stays stored.
        NoneKernelBody: the kernel is only declared.
        NoReference: the kernel is C++ and has no numpy meaning.
    """
    if kernel.native is not None:
        run_reference(kernel, args)
        return
    if kernel.body is None:
        raise NoneKernelBody(name=kernel.name, loc=kernel.loc)
    for block in range(kernel.block_dim):
        frame = _Frame(kernel, args, poll, task)
        frame.write = write
        frame.scalars[k.BLOCK_IDX] = block
        frame.statements(kernel.body)


@record
class _Tile:
    """The valid part of a tile, in its own type."""

    data: Array

    @property
    def valid(self) -> tuple[int, int]:
        return (self.data.shape[0], self.data.shape[1])


class _Frame:
    def __init__(
        self, kernel: k.KernelFunction, args: Sequence[Array | Value], poll: Callable[[], None], task: int
    ) -> None:
        self.kernel = kernel
        self.task = task
        self.write: Callable[[str], object] | None = None
        self.poll = poll
        self.iteration: list[str] = []
        self.types = dict(kernel.tiles)
        self.tiles: dict[str, _Tile] = {}
        self.views: dict[str, Array] = {}
        self.scalars: dict[str, Value] = {}
        for param, arg in zip(kernel.params, args, strict=True):
            if isinstance(arg, np.ndarray):
                self.views[param.name] = arg
            else:
                assert isinstance(param.type, ScalarType)
                self.scalars[param.name] = _scalar(arg, param.type.dtype)

    def statements(self, body: Sequence[k.Stmt]) -> None:
        for stmt in body:
            match stmt:
                case k.Load() | k.Prefetch():
                    self.load(stmt)
                case k.Store():
                    self.store(stmt)
                case k.Instr():
                    self.instruction(stmt)
                case k.Assign(name=name, value=value):
                    self.scalars[name] = self.value(value, stmt.loc)
                case k.Print():
                    self.print(stmt)
                case k.Assert():
                    self.check(stmt)
                case _:
                    self.control(stmt)

    def control(self, stmt: k.For | k.If | k.While | k.KernelCall) -> None:
        match stmt:
            case k.For():
                self.loop(stmt)
            case k.If(condition=condition, then=then, other=other):
                self.statements(then if self.value(condition, stmt.loc) else other)
            case k.While():
                self.repeat(stmt)
            case k.KernelCall(kernel=name, loc=loc):
                raise call_left(name, loc)

    def loop(self, stmt: k.For) -> None:
        start, stop = self.integer(stmt.start, stmt.loc), self.integer(stmt.stop, stmt.loc)
        self.iteration.append(stmt.var)
        for i in range(start, stop, stmt.step):
            self.poll()
            self.scalars[stmt.var] = i
            self.statements(stmt.body)
        self.iteration.pop()

    def repeat(self, stmt: k.While) -> None:
        outside = len(self.iteration)
        self.iteration += check_texts.variables(stmt.condition)
        while self.value(stmt.condition, stmt.loc):
            self.poll()
            self.statements(stmt.body)
        del self.iteration[outside:]

    def print(self, stmt: k.Print) -> None:
        """Write the parts to standard output, in one piece."""
        block = int(self.scalars[k.BLOCK_IDX]) if self.kernel.block_dim > 1 else None
        parts = [self.printed(part, stmt.loc) for part in stmt.parts]
        text = printed_text(self.task, block, self.kernel.name, parts)
        (self.write or sys.stdout.write)(text)

    def check(self, stmt: k.Assert) -> None:
        if not self.value(stmt.condition, stmt.loc):
            self.fail(CheckText(stmt.message), (), stmt.loc, check_texts.variables(stmt.condition))

    def printed(self, part: k.Words | str | Expr, loc: Location | None) -> str | Value | Array:
        if isinstance(part, k.Words):
            return part.text
        return self.tiles[part].data if isinstance(part, str) else self.value(part, loc)

    def load(self, stmt: k.Load | k.Prefetch) -> None:
        source = self.select(stmt.region, stmt.loc)
        if stmt.rows is not None:
            source = source[self.row_numbers(stmt.rows, source, stmt)]
        if isinstance(stmt, k.Prefetch):
            return
        tile = self.types[stmt.tile]
        if source.shape[0] > tile.rows or source.shape[1] > tile.cols:
            self.fail(check_texts.cannot_hold(tile, stmt.region.tensor), source.shape, stmt.loc)
        self.tiles[stmt.tile] = _Tile(source.copy())

    def store(self, stmt: k.Store) -> None:
        target = self.select(stmt.region, stmt.loc)
        tile = self.tiles[stmt.tile]
        shape, numbers = target.shape, None
        if stmt.rows is not None:
            numbers = self.row_numbers(stmt.rows, target, stmt)
            shape = (len(numbers), target.shape[1])
        if tile.valid != shape:
            self.fail(check_texts.shapes_differ(stmt.region.tensor), (*tile.valid, *shape), stmt.loc)
        target[... if numbers is None else numbers] = tile.data

    def row_numbers(self, name: str, view: Array, stmt: k.Move) -> Array:
        """Return the rows of a view that a tile names, or fail where there is no such row."""
        numbers = self.tiles[name].data.ravel()
        outside = (numbers < 0) | (numbers >= view.shape[0])
        if outside.any():
            text = check_texts.row_outside(stmt.region.tensor)
            self.fail(text, (int(numbers[outside][0]), view.shape[0]), stmt.loc)
        return numbers

    def select(self, region: Region, loc: Location | None) -> Array:
        """Return the numpy view that `region` means, or fail where it reaches outside."""
        view = self.views[region.tensor]
        index: list[int | slice] = []
        for dim, (select, size) in enumerate(zip(region.dims, view.shape, strict=True)):
            match select:
                case Full():
                    index.append(slice(None))
                case Index(at=at):
                    start = self.integer(at, loc)
                    self.inside(region.tensor, dim, start, start + 1, size, loc)
                    index.append(start)
                case Range(start=first, extent=extent):
                    start, count = self.integer(first, loc), self.integer(extent, loc)
                    self.inside(region.tensor, dim, start, start + max(count, 0), size, loc)
                    index.append(slice(start, start + max(count, 0)))
                case _:
                    raise AssertionError("tile ranges occur in workloads only")
        return view[tuple(index)]

    def inside(self, view: str, dim: int, start: int, stop: int, size: int, loc: Location | None) -> None:
        if start < 0 or stop > size:
            self.fail(check_texts.indexed_outside(view, dim), (start, stop, size), loc)

    def instruction(self, instr: k.Instr) -> None:
        row = TABLE[instr.op]
        assert row.numpy is not None
        dst = self.types[instr.dst]
        operands = [self.tiles[t] for t in instr.tiles]
        attrs: dict[str, object] = dict(instr.attrs)
        valid = [t.valid for t in operands]
        if any(a != b for a, b in valid_pairs_that_agree(row.form, valid, attrs)):
            text = check_texts.operands_differ(instr.op, len(valid))
            self.fail(text, [extent for shape in valid for extent in shape], instr.loc)
        attrs["valid"] = self.asked_valid(instr, dst)
        attrs["valid_shape"] = result_valid(row.form, valid, attrs)
        attrs["numpy_dtype"] = dst.dtype.to_numpy()
        attrs["numpy_source"] = self.types[(*instr.tiles, instr.dst)[0]].dtype.to_numpy()
        for key in ("row", "col"):
            place = instr.attr(key)
            if isinstance(place, Expr):
                attrs[key] = self.integer(place, instr.loc)
        scalars = [self.scalar_operand(s, row, instr, dst) for s in instr.scalars]
        arrays = [
            _compute_type(row, self.types[t].dtype, tile.data)
            for t, tile in zip(instr.tiles, operands, strict=True)
        ]
        with np.errstate(all="ignore"):
            try:
                result = np.asarray(row.numpy(*arrays, *scalars, attrs))
            except Undefined as error:
                text = check_texts.undefined(instr.op, str(error))
                shapes = [*valid, *([attrs["valid_shape"]] if instr.op in check_texts.RESHAPED else [])]
                found = (attrs.get(key) for key in ("row", "col"))
                place = [at if isinstance(at, int) else 0 for at in found]
                self.fail(text, [*chain.from_iterable(shapes), *place], instr.loc)
                raise AssertionError from error
            self.tiles[instr.dst] = _Tile(result.astype(dst.dtype.to_numpy()))

    def scalar_operand(self, expr: Expr, row: Instruction, instr: k.Instr, dst: TileType) -> object:
        """Return a scalar as an element of the tile, widened to what the row computes in.

        It is rounded to a float tile's type, and must lie in the range of an integer one's.
        """
        dtype = self.types[instr.tiles[-1]].dtype if instr.tiles else dst.dtype
        value = self.value(expr, instr.loc)
        if dtype.is_integer:
            low, high = dtype.integer_range
            if not low <= value <= high:
                self.fail(check_texts.beyond_range(dtype), (value,), instr.loc)
        with np.errstate(over="ignore"):
            element = np.asarray(value).astype(dtype.to_numpy())
        return _compute_type(row, dtype, element)

    def asked_valid(self, instr: k.Instr, dst: TileType) -> tuple[int, int]:
        """Return the valid extents that fill and expand instructions are asked to make."""
        asked = []
        for key, capacity in (("rows", dst.rows), ("cols", dst.cols)):
            expr = instr.attr(key)
            if expr is None:
                asked.append(capacity)
                continue
            assert not isinstance(expr, (str, int))
            count = self.integer(expr, instr.loc)
            if not 0 <= count <= capacity:
                self.fail(check_texts.too_many_valid(capacity, key), (count,), instr.loc)
            asked.append(count)
        return asked[0], asked[1]

    def value(self, expr: Expr, loc: Location | None) -> Value:
        try:
            return evaluate(expr, self.scalars, self)
        except BadExpression as error:
            text = CheckText(str(error.fields["reason"]))
            self.fail(text, (), loc, check_texts.variables(expr))
            raise AssertionError from error

    def integer(self, expr: Expr, loc: Location | None) -> int:
        return int(self.value(expr, loc))

    def extent(self, name: str, dim: int) -> int:
        array = self.views[name] if name in self.views else self.tiles[name].data
        return array.shape[dim]

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> Value:
        if name in self.views:
            return read_element(name, self.views[name], indices, loc)
        tile = self.tiles[name].data
        value = tile[element_place(name, tile, indices, loc)]
        return float(value) if self.types[name].dtype.is_float else value.item()

    def fail(
        self, text: CheckText, values: Sequence[Value], loc: Location | None, reads: Sequence[str] = ()
    ) -> None:
        where = check_texts.scalars_text(dict.fromkeys((*self.iteration, *reads)), self.scalars)
        reason = text.reason(values)
        raise KernelFailed(kernel=self.kernel.name, reason=reason, detail=where, loc=loc, hint=text.hint)


def _scalar(value: Value, dtype: DType) -> Value:
    return float(np.float32(value)) if dtype is f32 else value


def _compute_type(row: Instruction, dtype: DType, array: Array) -> Array:
    """Widen to what the row computes in: f64 where inexact, f32 for small floats, else the type itself."""
    if not dtype.is_float:
        return array
    return array.astype(np.float32 if row.bound.kind == "exact" else np.float64)
