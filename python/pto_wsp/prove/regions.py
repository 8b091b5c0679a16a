"""The claim that regions lie in their tensors and fit the parameters of kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pto_wsp.analysis.accesses.formula import FALSE, Linear, every, less_equal, number, opposite
from pto_wsp.analysis.accesses.instances import (
    Scene,
    extents_of,
    fits_parameter,
    instances_of,
    lies_inside,
)
from pto_wsp.analysis.accesses.sites import SiteStep, TakenBranch, TaskAccess, TaskSite
from pto_wsp.analysis.accesses.unknowns import SCALAR, ElementOf
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Merged, Range
from pto_wsp.ir.effects import names_in
from pto_wsp.ir.module import Module
from pto_wsp.ir.region_text import region_text
from pto_wsp.ir.scalar import Const, Element, Expr, format_expr, walk
from pto_wsp.prove.counter import CallValues, Judge
from pto_wsp.prove.finding import INSIDE, PROVED, REFUTED, UNKNOWN, CounterExample, Finding, TaskText
from pto_wsp.prove.question import Answer, Question, opaque_terms
from pto_wsp.prove.replay import Replay
from pto_wsp.prove.solver import Solver


def inside(module: Module, solver: Solver, found: Sequence[TaskSite]) -> Iterator[Finding]:
    """Yield a finding per region: it lies in its tensor, and fits its parameter."""
    open_sizes = _open_sizes(module.entry_workload)
    yield from _steps(module, solver, found)
    for site in found:
        for access in site.arguments:
            yield _Region(module, solver, access, open_sizes).finding()


def _steps(module: Module, solver: Solver, found: Sequence[TaskSite]) -> Iterator[Finding]:
    """Yield a finding per loop, condition and variable whose expression has no value for some values."""
    seen: set[int] = set()
    for site in found:
        for depth, step in enumerate(site.steps):
            node = step.node if isinstance(step, TakenBranch) else step
            if id(node) not in seen:
                seen.add(id(node))
                yield from _step(module, solver, site.steps[:depth], node)


def _step(
    module: Module, solver: Solver, around: Sequence[SiteStep], node: w.Loop | w.Cond | w.Set
) -> Iterator[Finding]:
    scene = Scene(module)
    place, _ = scene.enter(around, scene.outside)
    (expr,) = w.node_expressions(node)
    if isinstance(node, w.Loop):
        extent = place.value(expr)
        place.required.append(less_equal(number(0), extent))
    elif isinstance(node, w.Cond):
        place.condition(expr)
    else:
        place.value(expr)
    goal = opposite(every(*place.required))
    if goal == FALSE:
        return
    answer = Question(solver, scene, [goal]).answer()
    subject = f"`{_step_text(node, expr)}`"
    given: tuple[str, ...] = ()
    if not answer.never:  # the user of a call chooses scalars, and none below 0 makes sense as an extent
        scalars = [(u.text, at) for at, u in enumerate(scene.unknowns.table) if u.kind == SCALAR]
        positive = [less_equal(number(0), Linear(((at, 1),), 0)) for _, at in scalars]
        answer = Question(solver, scene, [goal, *positive]).answer()
        names = names_in(expr)
        given = tuple(f"`{name}` >= 0" for name, _ in scalars if name in names)
    if answer.never:
        if given or any(isinstance(part, Element) for part in walk(expr)):
            yield Finding(INSIDE, subject, PROVED, node.loc, given=given)
        return
    counter = None
    if answer.model is not None:
        counter = CallValues(module, scene, answer.model).counter_example(_step_judge)
    data = _data(scene)
    if counter is not None and not data:
        yield Finding(INSIDE, subject, REFUTED, node.loc, counter)
        return
    reason = f"`{data[0]}` is data, and each run checks it" if data else _reason(answer, scene)
    yield Finding(INSIDE, subject, UNKNOWN, node.loc, counter, reason)


def _step_text(node: w.Loop | w.Cond | w.Set, expr: Expr) -> str:
    """Return an expression as a workload states it."""
    match node:
        case w.Cond(then=(w.Refuse(assumption=text),)) if text:
            return f"assume({text})"
        case _:
            return format_expr(expr)


def _step_judge(replay: Replay) -> CounterExample | None:
    outside = replay.outside
    if outside is None or outside.task.node.kernel:
        return None
    event = "an expression has no value"
    return CounterExample((), (), (), outside.text.removeprefix(f"{event}: "), event)


def _open_sizes(workload: w.WorkloadFunction) -> frozenset[str]:
    """Return the sizes that are one dimension of one tensor, which an array gives, and nothing else."""
    dims = Counter(d for t in workload.tensors for d in t.type.dims if isinstance(d, str))
    exprs = [e for node in w.walk_nodes(workload.body) for e in w.node_expressions(node)]
    exprs += [p.value for p in workload.symbols if p.value is not None]
    used = names_in(*exprs) | {p.outer for p in workload.params if isinstance(p, w.RowsParam)}
    own = {p.name for p in workload.symbols if p.value is None} - used
    hidden = {t.name for t in workload.tensors if t.is_local or "." in t.name}
    own -= {d for t in workload.tensors if t.name in hidden for d in t.type.dims if isinstance(d, str)}
    return frozenset(name for name, count in dims.items() if count == 1 and name in own)


def _reason(answer: Answer, scene: Scene) -> str:
    terms = opaque_terms(scene)
    reason = f"`{terms[0]}` is not a sum of loop variables and sizes" if terms else "no proof was found"
    return answer.reason or reason


def _in_python(text: str) -> str:
    """Return an expression of a module with rows of axes as a workload writes them: `kv[b].extent`."""
    return _ROW.sub(r"\1[\2].extent", text)


_ROW = re.compile(r"(\w+)\.offsets\[(\w+) \+ 1\] - \1\.offsets\[\2\]")


class _Region:
    def __init__(
        self, module: Module, solver: Solver, access: TaskAccess, open_sizes: frozenset[str]
    ) -> None:
        self.module = module
        self.solver = solver
        self.access = access
        self.open_sizes = open_sizes
        self.subject = f"`{region_text(access.region).replace('%', '')}`"

    def finding(self) -> Finding:
        """Return the answer for its tensor; if that is a proof, together with that for its parameter."""
        given: tuple[str, ...] = ()
        answer, scene, _ = self._ask(False)
        if not answer.never and _offsets(scene):
            answer, scene, given = self._ask(True)
        if not answer.never:
            return self._outside(answer, scene)
        answer, scene, _ = self._ask(False, fits=True)
        if not answer.never:
            return self._does_not_fit(answer, scene)
        return Finding(INSIDE, self.subject, PROVED, self.access.loc, given=(*self._open(), *given))

    def _outside(self, answer: Answer, scene: Scene) -> Finding:
        names = _data(scene)
        if names:
            return self._unknown(f"`{names[0]}` is data, and each run checks where it points", self._bounds())
        return self._refuted(answer, scene) or self._unknown(_reason(answer, scene))

    def _does_not_fit(self, answer: Answer, scene: Scene) -> Finding:
        """Return the finding of a region whose extents its parameter may refuse."""
        counter = self._counter(answer, scene)
        if not (_data(scene) or _offsets(scene)):
            return self._refuted(answer, scene) or self._unknown(_reason(answer, scene))
        name, kernel = self.access.param.name, self.access.site.kernel.name
        limits = [
            (dim, high)
            for dim, (_, high) in zip(self._kept(), extents_of(self.access.param), strict=True)
            if isinstance(dim, Range) and high is not None and not isinstance(dim.extent, Const)
        ]
        assume = tuple(f"assume({_in_python(format_expr(d.extent))} <= {high})" for d, high in limits)
        reason = f"`{name}` of {kernel} does not take rows of every length"
        return Finding(INSIDE, self.subject, UNKNOWN, self.access.loc, counter, reason, assume=assume)

    def _bounds(self) -> tuple[str, ...]:
        """Return the statements that bound an index which is one element of an array."""
        name = self.access.region.tensor
        sizes = self.module.entry_workload.tensor(name).type.dims
        for at, (dim, size) in enumerate(zip(self.access.region.dims, sizes, strict=True)):
            if isinstance(dim, Index) and isinstance(dim.at, Element):
                text, bound = format_expr(dim.at), f"{name}.shape[{at}]" if isinstance(size, str) else size
                return f"assume({text} >= 0)", f"assume({text} < {bound})"
        return ()

    def _kept(self) -> list[object]:
        return [dim for dim in self.access.region.dims if not isinstance(dim, (Index, Merged))]

    def _refuted(self, answer: Answer, scene: Scene) -> Finding | None:
        counter = self._counter(answer, scene)
        return None if counter is None else Finding(INSIDE, self.subject, REFUTED, self.access.loc, counter)

    def _counter(self, answer: Answer, scene: Scene) -> CounterExample | None:
        if answer.model is None:
            return None
        return CallValues(self.module, scene, answer.model).counter_example(self._judge())

    def _unknown(self, reason: str, assume: tuple[str, ...] = ()) -> Finding:
        return Finding(INSIDE, self.subject, UNKNOWN, self.access.loc, reason=reason, assume=assume)

    def _open(self) -> tuple[str, ...]:
        dims = self.module.entry_workload.tensor(self.access.region.tensor).type.dims
        pairs = zip(dims, self.access.region.dims, strict=True)
        names = (name for name, dim in pairs if name in self.open_sizes and not isinstance(dim, Full))
        return tuple(f"`{name}` is large enough" for name in dict.fromkeys(names))

    def _ask(self, is_packed: bool, fits: bool = False) -> tuple[Answer, Scene, tuple[str, ...]]:
        """Ask for an instance whose region is wrong; with `is_packed`, rows end in their dimensions."""
        scene = Scene(self.module)
        (instance,) = instances_of(scene, 0, self.access.site)
        required = lies_inside(instance, self.access, self.open_sizes)
        goal = [opposite(every(*required))]
        if fits:
            goal = [*required, opposite(every(*fits_parameter(instance, self.access)))]
        given: list[str] = []
        if is_packed:
            sizes = scene.shapes[self.access.region.tensor]
            for dim, size in enumerate(sizes):
                used = [name for name in _offsets(scene) if _mentions(self.access.region.dims[dim], name)]
                for name in used:
                    goal += [less_equal(element, size) for element in _elements(scene, name)]
                    given.append(f"`{name}[-1]` <= {self._size(dim)}")
        return Question(self.solver, scene, goal).answer(), scene, tuple(dict.fromkeys(given))

    def _size(self, dim: int) -> str:
        size = self.module.entry_workload.tensor(self.access.region.tensor).type.dims[dim]
        return f"`{size}`"

    def _judge(self) -> Judge:
        def judge(replay: Replay) -> CounterExample | None:
            outside = replay.outside
            if outside is None or outside.region is not self.access.region:
                return None
            task = TaskText(f"`{outside.task.node.kernel}{outside.task.where}`", self.access.loc)
            return CounterExample((), (), (task,), outside.text, "a region is refused")

        return judge


def _mentions(dim: object, name: str) -> bool:
    return f"'{name}'" in repr(dim)


def _offsets(scene: Scene) -> list[str]:
    arrays = (m.array for m in scene.unknowns.meanings if isinstance(m, ElementOf))
    return [name for name in dict.fromkeys(arrays) if name in scene.unknowns.rising]


def _elements(scene: Scene, name: str) -> list[Linear]:
    meanings = scene.unknowns.meanings.items()
    return [Linear(((at, 1),), 0) for m, at in meanings if isinstance(m, ElementOf) and m.array == name]


def _data(scene: Scene) -> list[str]:
    """Return the elements that place a region, other than offsets of rows, as text."""
    unknowns = scene.unknowns
    found = [
        unknowns.table[at].text
        for m, at in unknowns.meanings.items()
        if isinstance(m, ElementOf) and m.array not in unknowns.rising
    ]
    return list(dict.fromkeys(found))
