"""How far the regions of a workload reach: the extents that its tensors need.

Bounds are polynomials of the workload's symbols; a loop variable represents the last value that it can have.
They may be larger than what a run touches, and are never smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from pto_wsp.ir import scalar as ir
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Index, Range, Region, TileRange
from pto_wsp.ir.scalar import Binary, Const, Expr, Name, Select, Unary, Var, name_of, walk

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]
"""Coefficients of products of atoms: names, or expressions other than sums and products."""

Bounds = Mapping[Name, Polynomial]
"""The largest value of each loop variable, and of the ranges of tiles loops; the smallest is 0."""

ONE: Monomial = ()


class _Unbounded(Exception):
    """An expression that the symbols do not bound."""


def extent_needed(workload: w.WorkloadFunction, tensor: str, dim: int) -> Expr | None:
    """Return an extent of a tensor's dimension that holds every region of it in a workload.

    Args:
        workload: a function; what others that it calls reach is not known.
        tensor: the name of one of its tensors.
        dim: a dimension of it.

    Returns:
        An expression of the workload's sizes and scalars; None where an element of a tensor or a variable
        decides, a row set, or a call.
    """
    symbols = frozenset(p.name for p in workload.symbols)
    ends: list[Expr] = []
    try:
        for region, bounds in _regions(workload.body, symbols, {}):
            if region.tensor == tensor:
                end = _to_expr(_end(region.dims[dim], symbols, bounds))
                if end not in ends:
                    ends.append(end)
    except _Unbounded:
        return None
    if not ends:
        return Const(0)
    needed = ends[0]
    for end in ends[1:]:
        needed = ir.binary("max", needed, end)
    sizes = frozenset(p.name for p in workload.params if isinstance(p, w.SizeParam))
    return needed if _is_natural(needed, sizes) else ir.binary("max", needed, Const(0))


def _regions(
    body: Sequence[w.Node], symbols: frozenset[str], bounds: dict[Name, Polynomial]
) -> Iterator[tuple[Region, Bounds]]:
    for node in body:
        match node:
            case w.Loop(var=var, extent=extent, tile=tile):
                longest = _largest(extent, symbols, bounds)
                last = _sum(longest, {ONE: -1})
                inner = {**bounds, var: last, node.start: last}
                if tile is not None:
                    inner[node.length] = {ONE: tile}
                for region, found in _regions(node.body, symbols, inner):
                    yield _clipped(region, node), found
            case w.Cond(then=then, other=other):
                yield from _regions((*then, *other), symbols, bounds)
            case w.Task(args=args):
                yield from ((arg, bounds) for arg in args if isinstance(arg, Region))
            case w.Process(body=body) | w.Send(body=body) | w.Receive(body=body):
                yield from _regions(body, symbols, bounds)
            case w.WorkloadCall():
                raise _Unbounded
            case w.Set() | w.Refuse() | w.Delay():
                pass
            case _:
                assert_never(node)


def _clipped(region: Region, loop: w.Loop) -> Region:
    """Return a region with the range of a tiles loop as the whole axis that it runs over."""
    dims = tuple(
        Range(Const(0), loop.extent) if isinstance(d, TileRange) and d.loop == loop.var else d
        for d in region.dims
    )
    return Region(region.tensor, dims, region.loc)


def _end(dim: DimSelect, symbols: frozenset[str], bounds: Bounds) -> Polynomial:
    match dim:
        case Index(at=at):
            return _sum(_largest(at, symbols, bounds), {ONE: 1})
        case Range(start=start, extent=extent):
            return _largest(ir.Binary("add", start, extent), symbols, bounds)
        case _:
            raise _Unbounded


# --- polynomials ---


def _largest(expr: Expr, symbols: frozenset[str], bounds: Bounds) -> Polynomial:
    """Return an upper bound of an expression, in symbols alone."""
    total: Polynomial = {}
    for monomial, factor in _polynomial(expr, symbols, bounds).items():
        inner = [a for a in monomial if not _is_symbolic(a, symbols)]
        if not inner:
            total = _sum(total, {monomial: factor})
            continue
        outer = tuple(a for a in monomial if _is_symbolic(a, symbols))
        is_alone = factor > 0 and len(monomial) == 1
        if not is_alone and not all(_is_counting(atom, bounds) for atom in inner):
            raise _Unbounded
        if not outer and factor < 0:
            continue
        term: Polynomial = {outer: factor}
        for atom in inner:
            term = _product(term, _largest_atom(atom, symbols, bounds))
        total = _sum(total, {(ir.binary("max", _to_expr(term), Const(0)),): 1} if outer else term)
    return total


def _polynomial(expr: Expr, symbols: frozenset[str], bounds: Bounds) -> Polynomial:
    match expr:
        case Const(value=int() as value):
            return {ONE: int(value)} if value else {}
        case Unary(op="neg", a=a):
            return _product({ONE: -1}, _polynomial(a, symbols, bounds))
        case Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
            left, right = (_polynomial(e, symbols, bounds) for e in (a, b))
            if op == "mul":
                return _product(left, right)
            return _sum(left, right if op == "add" else _product({ONE: -1}, right))
        case _:
            return {(expr,): 1}


def _is_symbolic(expr: Expr, symbols: frozenset[str]) -> bool:
    """Whether the symbols of a workload alone decide an expression."""
    return all(
        e.name in symbols if isinstance(e, Var) else isinstance(e, (Const, Unary, Binary, Select))
        for e in walk(expr)
    )


def _is_counting(atom: Expr, bounds: Bounds) -> bool:
    """Whether an atom is never below 0: a loop variable or a remainder."""
    match atom:
        case Binary(op="mod", b=Const(value=int() as value)):
            return value > 0
        case _:
            return name_of(atom) in bounds


def _largest_atom(atom: Expr, symbols: frozenset[str], bounds: Bounds) -> Polynomial:
    match atom:
        case _ if (name := name_of(atom)) is not None and name in bounds:
            return bounds[name]
        case Binary(op="min" | "max" as op, a=a, b=b):
            left, right = (_to_expr(_largest(e, symbols, bounds)) for e in (a, b))
            return {(ir.binary(op, left, right),): 1}
        case Select(then=then, other=other):
            left, right = (_to_expr(_largest(e, symbols, bounds)) for e in (then, other))
            return {(ir.binary("max", left, right),): 1}
        case Binary(op="mod", b=Const(value=int() as value)) if value > 0:
            return {ONE: int(value) - 1}
        case Binary(op="floordiv", a=a, b=Const(value=int() as value)) if value > 0:
            end = _to_expr(_largest(a, symbols, bounds))
            return {(ir.binary("floordiv", end, Const(value)),): 1}
        case _:
            raise _Unbounded


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    found = dict(a)
    for monomial, factor in b.items():
        found[monomial] = found.get(monomial, 0) + factor
    return {monomial: factor for monomial, factor in found.items() if factor}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for x, m in a.items():
        for y, n in b.items():
            key = tuple(sorted((*x, *y), key=repr))
            found[key] = found.get(key, 0) + m * n
    return {monomial: factor for monomial, factor in found.items() if factor}


def _to_expr(polynomial: Polynomial) -> Expr:
    total: Expr = Const(0)
    for monomial, factor in sorted(polynomial.items(), key=lambda item: item[0] == ONE):
        if monomial == ONE:
            total = ir.binary("add" if factor > 0 else "sub", total, Const(abs(factor)))
            continue
        term = monomial[0]
        for atom in monomial[1:]:
            term = ir.mul(term, atom)
        total = ir.add(total, ir.mul(term, Const(factor)))
    return total


def _is_natural(expr: Expr, sizes: frozenset[str]) -> bool:
    """Whether an extent is never negative: an expression of sizes without subtraction and slicing."""
    return all(
        (isinstance(e, Const) and e.value >= 0)
        or (isinstance(e, Var) and e.name in sizes)
        or (isinstance(e, Binary) and e.op in ("add", "mul", "max"))
        for e in walk(expr)
    )
