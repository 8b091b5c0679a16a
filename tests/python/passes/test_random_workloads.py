"""Passes over random workloads whose results depend on the order of their tasks: the same bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Var
from pto_wsp.ir.verify import verify
from pto_wsp.passes.pipeline import parse_pipeline, prepare, run_pipeline
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from tests.generators.drawing import tries
from tests.generators.workloads import Sample, samples
from tests.python.passes.running import interpret, run_on_cpu, same

PIPELINES = ("inline", "inline,expand", "inline,fuse", "inline,dce", "inline,expand,fuse,dce")


ROWS_OF_PASSES = st.lists(
    st.sampled_from(("inline", "expand", "fuse", "dce", "canonical", "unroll", "forward", "reuse")),
    min_size=1,
    max_size=6,
).map(",".join)


@st.composite
def programs(draw: st.DrawFn) -> Sample:
    """Draw a workload that another one calls, some of whose loops have ranges."""
    sample = draw(samples())

    def ranged(node: w.Node) -> w.Node:
        if not isinstance(node, w.Loop):
            return node
        body = tuple(map(ranged, node.body))
        if node.kind == w.SEQUENTIAL or node.tile is not None or draw(st.booleans()):
            return replace(node, body=body)
        smallest, largest = draw(st.sampled_from([(None, 1), (None, 4), (2, 2), (2, 8), (4, 4)]))
        return replace(node, body=body, max_range=largest, min_range=smallest)

    inner = sample.module.entry_workload
    inner = replace(inner, body=tuple(map(ranged, inner.body)))
    regions = [Region(t.name, (Full(),) * len(t.type.dims)) for t in inner.tensors]
    args = {t.name: r for t, r in zip(inner.tensors, regions, strict=True)} | {"n": Var("n")}
    call = w.WorkloadCall(inner.name, tuple(args[p.name] for p in inner.open_params))
    body = (call, w.Loop(draw(st.sampled_from([w.RANGE, w.PARALLEL])), "twice", Var("n"), None, (call,)))
    outer = replace(inner, name="outer", body=body[: draw(st.integers(1, 2))])
    module = Module("m", sample.module.kernels, (inner, outer), "outer")
    return Sample(verify(module), sample.shapes, {"n": min(sample.sizes["n"], 3)})


def without_ranges(function: w.WorkloadFunction) -> tuple[w.Node, ...]:
    """The body of a workload without ranges of its loops."""

    def without(node: w.Node) -> w.Node:
        if isinstance(node, w.Loop):
            return replace(node, body=tuple(map(without, node.body)), max_range=None, min_range=None)
        return node

    return tuple(map(without, function.body))


def plain(module: Module) -> Module:
    """The same tasks without a pass: the body of the callee for its calls, loops without ranges."""

    def repeated(node: w.Node) -> tuple[w.Node, ...]:
        if isinstance(node, w.WorkloadCall):
            return without_ranges(inner)
        assert isinstance(node, w.Loop)
        return (replace(node, body=tuple(n for child in node.body for n in repeated(child))),)

    inner, outer = module.workloads
    body = tuple(n for node in outer.body for n in repeated(node))
    return replace(module, workloads=(replace(outer, body=body),))


@tries(8)
@given(programs())
def test_in_the_interpreter(sample: Sample) -> None:
    wanted = sample.arrays()
    tasks = interpret(plain(sample.module), wanted, sample.sizes)
    for text in PIPELINES:
        module = run_pipeline(sample.module, parse_pipeline(text))
        if "expand" in text or not any(isinstance(n, w.Loop) and n.max_range for n in _nodes(module)):
            assert not any(isinstance(n, w.WorkloadCall) for n in _nodes(module))
        found = sample.arrays()
        assert interpret(module, found, sample.sizes) == tasks, text
        same(wanted, found)


def _nodes(module: Module) -> list[w.Node]:
    return [*w.walk_nodes(module.entry_workload.body)]


@tries(25)
@given(programs(), st.lists(ROWS_OF_PASSES, min_size=3, max_size=3))
def test_any_row_of_passes(sample: Sample, pipelines: list[str]) -> None:
    """In any order, and before calls are inlined too."""
    wanted = sample.arrays()
    tasks = interpret(plain(sample.module), wanted, sample.sizes)
    for text in pipelines:
        module = prepare(run_pipeline(sample.module, parse_pipeline(text)))
        found = sample.arrays()
        assert interpret(module, found, sample.sizes) == tasks, text
        same(wanted, found)


@tries(10)
@given(programs())
def test_on_the_engine(sample: Sample) -> None:
    """A program prepares its module itself."""
    wanted, found = sample.arrays(), sample.arrays()
    inlined = run_pipeline(sample.module, parse_pipeline("inline,dce"))
    before = replace(
        inlined, workloads=(replace(inlined.entry_workload, body=without_ranges(inlined.entry_workload)),)
    )
    tasks = run_on_cpu(Program(before, {}, "cpu"), wanted, sample.sizes)
    assert run_on_cpu(Program(sample.module, {}, "cpu"), found, sample.sizes) == tasks
    same(wanted, found)
