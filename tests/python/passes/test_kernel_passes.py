"""Passes over random kernels: the same bits, and the same kernels fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.errors import InvalidIR, KernelFailed
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.passes import pipeline as passes
from pto_wsp.passes.pipeline import PipelineStep, parse_pipeline, run_pipeline
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.kernels import kernels
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_random import base_array, layouts, same_bits, views

PIPELINES = ("dce", "forward", "unroll", "unroll{factor=3,full=1}", "reuse", "fuse")
EVERYTHING = "unroll{factor=2,full=2},fuse,forward,reuse,dce"


ROWS_OF_PASSES = st.lists(
    st.sampled_from((*PIPELINES, "canonical", "inline", "expand", "unroll{factor=0,full=9}")),
    min_size=2,
    max_size=7,
).map(",".join)


def run(kernel: KernelFunction, layout: Mapping[str, tuple[int, int, int, int]], seed: int) -> tuple:
    array = base_array(kernel.views[0].type.dtype, seed)
    try:
        run_kernel(kernel, [*views(array, layout), 0.75, seed % 6])
    except KernelFailed:
        return array, True
    return array, False


@tries(60)
@given(
    kernels("k", has_all=True),
    st.lists(layouts(), min_size=3, max_size=3),
    st.lists(ROWS_OF_PASSES, min_size=3, max_size=3),
    st.integers(0, 99),
)
def test_random_kernels_in_the_interpreter(
    kernel: KernelFunction,
    arrangements: list[Mapping[str, tuple[int, int, int, int]]],
    pipelines: list[str],
    seed: int,
) -> None:
    module = verify(Module("m", (kernel,)))
    made = {text: run_pipeline(module, parse_pipeline(text)) for text in (*PIPELINES, EVERYTHING, *pipelines)}
    for layout in arrangements:
        wanted, failed = run(kernel, layout, seed)
        for text, after in made.items():
            note(f"{text}\n{after}")
            found, has_failed = run(after.kernel("k"), layout, seed)
            assert has_failed == failed, text
            assert failed or same_bits(found, wanted), text


@tries(3, compiles=True)
@given(
    st.tuples(*(kernels(f"k{i}", has_all=True) for i in range(4))),
    st.lists(layouts(), min_size=4, max_size=4),
    st.one_of(st.just(EVERYTHING), ROWS_OF_PASSES),
    st.integers(0, 99),
)
def test_random_kernels_on_the_cpu(
    batch: tuple[KernelFunction, ...],
    arrangements: list[Mapping[str, tuple[int, int, int, int]]],
    pipeline: str,
    seed: int,
) -> None:
    """What the cpu makes of a kernel is the same before and after, also where it is not exact."""
    after = run_pipeline(verify(Module("m", batch)), parse_pipeline(pipeline)).kernels
    built = [ctypes_abi.load(CpuTarget().build(found, ArtifactCache())) for found in (batch, after)]
    for pair in zip(batch, after, strict=True):
        for layout in arrangements:
            results, failed = [], []
            for library, kernel in zip(built, pair, strict=True):
                results.append(base_array(kernel.views[0].type.dtype, seed))
                failed.append(library.call(kernel, [*views(results[-1], layout), 0.75, seed % 6]) != 0)
            note(f"{pair[0]}\n{pair[1]}\n{layout}")
            assert failed[0] == failed[1]
            assert failed[0] or same_bits(*results)


def test_pipelines_are_text() -> None:
    steps = parse_pipeline(" inline , unroll{ factor = 8 },dce")
    assert [str(step) for step in steps] == ["inline", "unroll{factor=8}", "dce"]
    seen: list[tuple[str, str]] = []

    def note_step(step: PipelineStep, module: Module) -> None:
        seen.append((str(step), module.name))

    run_pipeline(Module("m"), steps, note_step)
    assert seen == [("inline", "m"), ("unroll{factor=8}", "m"), ("dce", "m")]
    assert all(pass_.doc and not pass_.doc.endswith(".") for pass_ in (s.made_by for s in steps))


def test_what_a_pass_makes_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = passes.Pass("broken", lambda module: Module("m", entry="nothing"), "", {})
    monkeypatch.setitem(passes.PASSES, "broken", broken)
    with pytest.raises(InvalidIR, match="the pass `broken` made a module that is not sound"):
        run_pipeline(Module("m"), parse_pipeline("broken"))
