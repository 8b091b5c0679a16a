"""The claim that instances of a kernel with `block_dim` write different elements."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pto_wsp.analysis.accesses.formula import Formula, Linear, less, less_equal, number, opposite
from pto_wsp.analysis.accesses.places import IterationPlace
from pto_wsp.analysis.accesses.sites import TaskAccess, TaskSite
from pto_wsp.analysis.accesses.unknowns import LOOP, SCALAR, SIZE, Unknowns
from pto_wsp.errors import BadExpression
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Index, Range
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Expr, Extent, Name, Value
from pto_wsp.location import Location
from pto_wsp.prove.finding import (
    INSTANCES,
    PROVED,
    REFUTED,
    UNKNOWN,
    CounterExample,
    Finding,
    TaskText,
)
from pto_wsp.prove.solver import Model, Solver, Undecided
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType, ViewType

Steps = tuple["k.For | tuple[k.If, bool] | k.Assign", ...]


@record
class _Write:
    """A store, with the loops and conditions around it and the assignments before it."""

    store: k.Store
    steps: Steps


def instances(module: Module, solver: Solver, found: Sequence[TaskSite]) -> Iterator[Finding]:
    """Yield a finding per kernel with `block_dim`: no two of its instances write one element."""
    for kernel in module.kernels:
        if kernel.block_dim > 1:
            calls = [site for site in found if site.kernel is kernel]
            yield next(filter(None, map(_shared_output, calls)), None) or _Blocks(kernel, solver).finding()


def _shared_output(call: TaskSite) -> Finding | None:
    """Return that the answer is unknown if a task gives one tensor to two parameters that it writes."""
    given: dict[str, TaskAccess] = {}
    for access in call.accesses:
        first = given.setdefault(access.region.tensor, access) if access.is_write else access
        if first is not access:
            names = f"`{first.param.name}` and `{access.param.name}`"
            reason = f"{names} are parts of `{access.region.tensor}`, and may share elements"
            return Finding(INSTANCES, f"`{call.kernel.name}`", UNKNOWN, access.loc, reason=reason)
    return None


class _KernelPlace(IterationPlace):
    """A place in a kernel: extents of views are the same in all instances."""

    def opaque(self, expr: Expr) -> Linear:
        """Return an unknown: of an extent, one that all instances share."""
        if isinstance(expr, Extent):
            found, is_new = self.unknowns.known(SIZE, f"{expr.name}.shape[{expr.dim}]", ("extent", expr))
            if is_new:
                self.unknowns.facts.append(less_equal(number(0), found))
            return found
        return super().opaque(expr)


class _Blocks:
    def __init__(self, kernel: k.KernelFunction, solver: Solver) -> None:
        self.kernel = kernel
        self.solver = solver
        self.subject = f"`{kernel.name}`"
        assigned = (s.name for s in k.walk_statements(kernel.body or ()) if isinstance(s, k.Assign))
        self.once = {name for name, count in Counter(assigned).items() if count == 1}
        self.unclear = ""

    def finding(self) -> Finding:
        """Return the answer for all pairs of stores."""
        if self.kernel.body is None:
            return self._made(UNKNOWN, self.kernel.loc, "its body is C++")
        writes = [*self._writes(self.kernel.body, ())]
        for first, second in itertools.product(writes, writes):
            if first.store.region.tensor == second.store.region.tensor:
                found = self._pair(first, second)
                if found is not None:
                    return found
        return self._made(PROVED, self.kernel.loc)

    def _made(self, status: str, loc: Location | None, reason: str = "") -> Finding:
        return Finding(INSTANCES, self.subject, status, loc, reason=reason)

    def _writes(self, body: Sequence[k.Stmt], steps: Steps) -> Iterator[_Write]:
        for stmt in body:
            match stmt:
                case k.Store():
                    yield _Write(stmt, steps)
                case k.For(body=inner):
                    yield from self._writes(inner, (*steps, stmt))
                case k.If(then=then, other=other):
                    yield from self._writes(then, (*steps, (stmt, True)))
                    yield from self._writes(other, (*steps, (stmt, False)))
                case k.While(body=inner):
                    yield from self._writes(inner, steps)
                case k.Assign(name=name) if name in self.once:
                    steps = (*steps, stmt)
                case k.Assign() | k.Load() | k.Prefetch() | k.Instr() | k.Print() | k.Assert():
                    pass
                case k.KernelCall():
                    raise AssertionError("calls are inlined")

    def _pair(self, first: _Write, second: _Write) -> Finding | None:
        """Return why two stores may write one element in different instances, or None if they do not."""
        unknowns = Unknowns(frozenset(), frozenset())
        scalars: dict[Name, Linear] = {
            p.name: unknowns.new(SCALAR, p.name) for p in self.kernel.scalar_params
        }
        places = [self._enter(write, unknowns, scalars) for write in (first, second)]
        blocks = [place.values[k.BLOCK_IDX] for place in places]
        spans = [self._spans(write, place) for write, place in zip((first, second), places, strict=True)]
        goal: list[Formula] = [less(blocks[0], blocks[1])]
        for (a, a_extent), (b, b_extent) in zip(*spans, strict=True):
            goal += [less(a, b + b_extent), less(b, a + a_extent)]
            goal += [less(number(0), a_extent), less(number(0), b_extent)]
        measure = Linear(tuple((at, 1) for at, u in enumerate(unknowns.table) if u.kind == SIZE), 0)
        try:
            model = self.solver.smallest([*unknowns.facts, *unknowns.lemmas(), *goal], measure)
        except Undecided:
            return self._made(UNKNOWN, second.store.loc, "the formula has too many cases")
        if model is None:
            return None
        return self._confirmed(first, second, unknowns, model, scalars)

    def _enter(self, write: _Write, unknowns: Unknowns, scalars: Mapping[Name, Linear]) -> IterationPlace:
        block = unknowns.new(LOOP, "block_idx")
        place = _KernelPlace(unknowns, frozenset(), {}, {**scalars, k.BLOCK_IDX: block})
        place.shapes = _AnyShape(self.kernel, place)
        place.late = frozenset(p.name for p in self.kernel.views if p.role != k.IN)
        facts = unknowns.facts
        facts += [less_equal(number(0), block), less(block, number(self.kernel.block_dim))]
        for step in write.steps:
            match step:
                case k.For():
                    turn = unknowns.new(LOOP, step.var)
                    index = place.value(step.start) + turn.times(step.step)
                    facts += [less_equal(number(0), turn), less(index, place.value(step.stop))]
                    place.values[step.var] = index
                case k.Assign():
                    if step.value.dtype.is_integer:
                        place.values[step.name] = place.value(step.value)
                case (branch, is_taken):
                    condition = place.condition(branch.condition)
                    facts.append(condition if is_taken else opposite(condition))
        return place

    def _spans(self, write: _Write, place: IterationPlace) -> list[tuple[Linear, Linear]]:
        """Return start and extent of each dimension of a store; it lies inside its view."""
        found: list[tuple[Linear, Linear]] = []
        for dim, entry in enumerate(write.store.region.dims):
            size = place.shapes[write.store.region.tensor][dim]
            match entry:
                case Index(at=at):
                    span = (place.value(at), number(1))
                case Range(start=start, extent=extent):
                    span = (place.value(start), place.value(extent))
                case _:
                    span = (number(0), size)
            if write.store.rows is not None and dim == 0:
                span = (number(0), size)
            found.append(span)
            place.unknowns.facts += [less_equal(number(0), span[0]), less_equal(span[0] + span[1], size)]
        return found

    def _confirmed(
        self, first: _Write, second: _Write, unknowns: Unknowns, model: Model, scalars: Mapping[Name, Linear]
    ) -> Finding:
        """Return a refutation if the stores, evaluated with the model's values, share an element."""
        extents = {
            (meaning[1].name, meaning[1].dim): model.get(at, 0)
            for meaning, at in unknowns.meanings.items()
            if isinstance(meaning, tuple) and meaning[0] == "extent" and isinstance(meaning[1], Extent)
        }
        values = {str(name): symbol.at(model) for name, symbol in scalars.items()}
        reader = _Extents(self.kernel, extents)
        try:
            for one, other in itertools.combinations(range(self.kernel.block_dim), 2):
                a = set(_elements(first, {**values, k.BLOCK_IDX: one}, reader))
                b = set(_elements(second, {**values, k.BLOCK_IDX: other}, reader))
                if a & b:
                    return self._refuted(first, second, (one, other), sorted(a & b)[0], extents, values)
        except (BadExpression, KeyError, _Unknowable):
            pass
        reason = "a value that the kernel reads or computes decides what it writes"
        return self._made(UNKNOWN, second.store.loc, reason)

    def _refuted(
        self,
        first: _Write,
        second: _Write,
        blocks: tuple[int, int],
        place: tuple[int, ...],
        extents: Mapping[tuple[str, int], int],
        values: Mapping[str, int],
    ) -> Finding:
        sizes = [(f"{name}.shape[{dim}]", size) for (name, dim), size in extents.items()] + [*values.items()]
        texts = tuple(
            TaskText(f"instance {block} of `{self.kernel.name}`", write.store.loc)
            for block, write in zip(blocks, (first, second), strict=True)
        )
        region = f"{first.store.region.tensor}[{', '.join(map(str, place))}]"
        counter = CounterExample(tuple(sizes), (), texts, region, "two instances write")
        return Finding(INSTANCES, self.subject, REFUTED, second.store.loc, counter)


class _AnyShape(Mapping[str, "tuple[Linear, ...]"]):
    """The shapes of a kernel's views: numbers of their types, else the unknowns of their extents."""

    def __init__(self, kernel: k.KernelFunction, place: IterationPlace) -> None:
        self.kernel = kernel
        self.place = place

    def __getitem__(self, name: str) -> tuple[Linear, ...]:
        dims = _static(self.kernel.param(name))
        return tuple(
            number(d) if d is not None else self.place.value(Extent(name, at)) for at, d in enumerate(dims)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(p.name for p in self.kernel.views)

    def __len__(self) -> int:
        return len(self.kernel.views)


def _static(param: k.Param) -> tuple[int | None, ...]:
    match param.type:
        case ViewType(dims=dims) if dims is not None:
            return dims
        case TileType():
            return None, None
        case _:
            raise AssertionError("a store is to a view of known rank")


class _Unknowable(Exception):
    """A value that takes a run to know."""


@record
class _Extents:
    """Answers for the extents of views; elements are unknown."""

    kernel: k.KernelFunction
    sizes: Mapping[tuple[str, int], int]

    def extent(self, name: str, dim: int) -> int:
        """Return an extent of a view."""
        static = _static(self.kernel.param(name))[dim]
        return self.sizes.get((name, dim), 0) if static is None else static

    def element(self, name: str, indices: object, loc: Location | None) -> int:
        """Refuse: elements are data."""
        raise _Unknowable


def _elements(write: _Write, scope: dict[str, Value], reader: _Extents) -> Iterator[tuple[int, ...]]:
    """Yield the elements that a store writes in one instance."""
    if write.store.rows is not None:
        raise _Unknowable
    for values in _turns(write.steps, scope, reader):
        spans: list[range] = []
        for dim, entry in enumerate(write.store.region.dims):
            match entry:
                case Index(at=at):
                    start, extent = int(evaluate(at, values, reader)), 1
                case Range(start=first, extent=length):
                    start = int(evaluate(first, values, reader))
                    extent = int(evaluate(length, values, reader))
                case _:
                    start, extent = 0, reader.extent(write.store.region.tensor, dim)
            spans.append(range(start, start + extent))
        yield from itertools.product(*spans)


def _turns(steps: Steps, scope: dict[str, Value], reader: _Extents) -> Iterator[dict[str, Value]]:
    """Yield the values of scalars each time that statements inside loops and conditions run."""
    if not steps:
        yield scope
        return
    step, rest = steps[0], steps[1:]
    match step:
        case k.For():
            start, stop = (int(evaluate(e, scope, reader)) for e in (step.start, step.stop))
            for index in range(start, stop, step.step):
                yield from _turns(rest, {**scope, step.var: index}, reader)
        case k.Assign():
            yield from _turns(rest, {**scope, step.name: evaluate(step.value, scope, reader)}, reader)
        case (branch, is_taken):
            if bool(evaluate(branch.condition, scope, reader)) == is_taken:
                yield from _turns(rest, scope, reader)
