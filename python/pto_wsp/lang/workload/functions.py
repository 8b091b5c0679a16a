"""Bodies of workloads: a function, or several after one another; their parameters, and recording them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from pto_wsp.errors import BadHandle, BadNetwork, NameClash, UnsupportedSyntax
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Binary, Const, Expr
from pto_wsp.lang.annotations import RaggedAnnotation, SparseAnnotation, TensorAnnotation
from pto_wsp.lang.source import MISSING, FunctionSource
from pto_wsp.lang.workload.blocks import OpenCond, OpenNode, OpenProcess, tasks_of
from pto_wsp.lang.workload.replicas import require_one_for_one
from pto_wsp.lang.workload.tasks import Handle
from pto_wsp.lang.workload.trace import Frame, WorkloadTrace
from pto_wsp.location import Location
from pto_wsp.support.record import record

COMBINE, SEQUENTIAL, NETWORK = "combine", "sequential", "network"


@record
class ComposedBodies:
    """Several bodies: `combine`d, in program order ordered by data alone, `sequential`, or a `network`.

    Attributes:
        kind: how they are composed.
        parts: the bodies.
        loc: place of the composition.
        processes: of a network, the name of each part.
        replicas: of a network, the names of those that `replicate` made.
        is_nondeterministic: of a network, whether results may depend on the moment.
    """

    kind: str
    parts: tuple[Body, ...]
    loc: Location | None = None
    processes: tuple[str, ...] = ()
    replicas: frozenset[str] = frozenset()
    is_nondeterministic: bool = False


Body = FunctionSource | ComposedBodies


@record
class BodyParameter:
    """A parameter of a body: its annotation and default, and a function that has it."""

    source: FunctionSource
    annotation: object
    default: object

    @property
    def names_sizes(self) -> bool:
        """Whether sizes that other parameters declare may occur in its annotation."""
        return isinstance(self.annotation, (TensorAnnotation, RaggedAnnotation, SparseAnnotation))

    def loc(self, name: str) -> Location:
        """Return the place of the parameter `name`."""
        return self.source.at(self.source.args[name]) if name in self.source.args else self.source.loc


def functions(body: Body) -> Iterator[FunctionSource]:
    """Yield the functions of a body, in order."""
    if isinstance(body, FunctionSource):
        yield body
    else:
        for part in body.parts:
            yield from functions(part)


def declarations(body: Body) -> dict[str, BodyParameter]:
    """Return the parameters of a body by name: those of one name in several functions are one.

    Raises:
        NameClash: parameters of one name that are declared differently.
    """
    found: dict[str, BodyParameter] = {}
    for source in functions(body):
        for name, default in source.parameters("workload").items():
            new = BodyParameter(source, _annotation(source, name), default)
            found[name] = _merged(name, found[name], new) if name in found else new
    return found


def _annotation(source: FunctionSource, name: str) -> object:
    if name in source.args:
        return source.annotation(source.args[name])
    return inspect.get_annotations(source.function, eval_str=True).get(name)


def _merged(name: str, one: BodyParameter, two: BodyParameter) -> BodyParameter:
    """Return what both declare; no annotation and no default agree with any."""
    pairs = ((one.annotation, two.annotation, None), (one.default, two.default, MISSING))
    for a, b, nothing in pairs:
        if a is not nothing and b is not nothing and a is not b and not _is_equal(a, b):
            notes = [("the first one", one.loc(name)), ("the second one", two.loc(name))]
            raise NameClash(kind="parameters", name=name, loc=two.loc(name), notes=notes)
    typed = one if one.annotation is not None else two
    return BodyParameter(
        typed.source, typed.annotation, two.default if one.default is MISSING else one.default
    )


def _is_equal(a: object, b: object) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except ValueError:  # arrays have no single truth value
        return False


def record_body(
    trace: WorkloadTrace, body: Body, arguments: dict[str, object], sizes: dict[str, Expr] | None
) -> Handle:
    """Record a body with what its functions get for their parameters.

    Args:
        trace: where it is recorded.
        body: what is recorded.
        arguments: a value per parameter.
        sizes: the values of the sizes that its parameters name, or None where they are the trace's own.

    Raises:
        FrontendError: something in it has no meaning in a workload.
    """
    if isinstance(body, ComposedBodies) and body.kind == NETWORK:
        return _record_network(trace, body, arguments, sizes)
    if isinstance(body, ComposedBodies):
        parts = [record_body(trace, part, arguments, sizes) for part in body.parts]
        return compose(trace, body.kind, parts, body.loc)
    outer = trace.blocks.innermost
    first = len(outer.nodes)
    block = trace.blocks.enter(outer.nodes, "a workload", body.loc)
    trace.frames.append(Frame(body, arguments, sizes))
    trace.sources[body.function] = body
    result = body.function(**{name: arguments[name] for name in body.parameters("workload")})
    trace.frames.pop()
    trace.blocks.leave(block)
    if result is not None:
        raise UnsupportedSyntax(
            construct="returning a value",
            where="workload",
            detail="a workload describes tasks",
            advice="write results to tensors",
            loc=body.loc,
        )
    trace.blocks.end_chain(body.loc)
    return Handle(trace, outer.nodes[first:], [], body.loc)


def _record_network(
    trace: WorkloadTrace, body: ComposedBodies, arguments: dict[str, object], sizes: dict[str, Expr] | None
) -> Handle:
    outer = trace.blocks.innermost
    if outer.nodes or trace.frames:
        raise BadNetwork(
            problem="a network cannot be part of a workload",
            detail="it has no place in a program order",
            advice="compile it alone, or let a process of it make these tasks",
            loc=body.loc,
        )
    for name, part in zip(body.processes, body.parts, strict=True):
        process = OpenProcess(name, part.loc, [])
        trace.blocks.add(process)
        block = trace.blocks.enter(process.body, "a process", part.loc)
        trace.is_in_process = True
        record_body(trace, part, arguments, sizes)
        trace.is_in_process = False
        trace.blocks.leave(block)
        if name in body.replicas:
            require_one_for_one(process)
    _declare_merges(trace, body)
    return Handle(trace, outer.nodes, [], body.loc)


def _declare_merges(trace: WorkloadTrace, body: ComposedBodies) -> None:
    """Note that channels are merged as tokens come, or refuse to declare what is not so."""
    if not body.is_nondeterministic:
        return
    if all(channel.record.merge != w.TIME for channel, _ in trace.channels.values()):
        raise BadNetwork(
            problem="it is declared as nondeterministic, and it is deterministic",
            detail='no channel of it has `merge="time"`',
            advice="leave `nondeterministic=True` out",
            loc=body.loc,
        )
    trace.is_nondeterministic = True


def compose(trace: WorkloadTrace, kind: str, parts: Sequence[Handle], loc: Location | None) -> Handle:
    """Return a handle of several calls, which are complete one before the other if they are sequential.

    Raises:
        BadHandle: they are not what was recorded last, in this order.
    """
    nodes = [node for part in parts for node in part.nodes]
    block = trace.blocks.innermost
    last = block.nodes[len(block.nodes) - len(nodes) :]
    is_last = len(last) == len(nodes) and all(a is b for a, b in zip(last, nodes, strict=True))
    for part in parts:
        if part.trace is not trace or part.block is not block or not is_last:
            problem = "these calls are not the last ones before it in this block, in this order"
            raise BadHandle(what=kind, problem=problem, loc=loc, notes=[("made here", part.loc)])
    if kind == COMBINE:
        tasks = [task for part in parts for task in part.tasks]
        return Handle(trace, nodes, tasks if all(part.tasks for part in parts) else [], loc)
    del block.nodes[len(block.nodes) - len(nodes) :]
    return _in_steps(trace, [part.nodes for part in parts], loc)


def _in_steps(trace: WorkloadTrace, parts: Sequence[Sequence[OpenNode]], loc: Location | None) -> Handle:
    """Record a loop whose iterations, each complete before the next begins, are the parts."""
    loop, block = trace.open_loop(w.SEQUENTIAL, "step", Const(len(parts)), None, loc)
    earlier: set[int] = set()
    for number, nodes in enumerate(parts):
        tasks = list(tasks_of(nodes))
        for task in tasks:  # all tasks of an earlier step are complete
            task.after[:] = [t for t in task.after if id(t) not in earlier]
        earlier |= {id(task) for task in tasks}
        condition = Binary("eq", loop.index, Const(number), loc)
        trace.blocks.add(OpenCond(condition, loc, list(nodes), []))
    trace.blocks.leave(block)
    return Handle(trace, [loop], [], loc)
