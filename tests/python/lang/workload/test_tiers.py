"""Tiers: which kernel a size selects, in how many comparisons, and what is refused where."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pto_wsp import parse
from pto_wsp.errors import PtoError
from pto_wsp.ir import workload as ir
from tests.python.lang.programs import execute, marked

TARGETS = pytest.mark.parametrize("target", ["interp", "cpu"])


def program_of(bounds: list[int | None]) -> str:
    """Return a program whose kernel k<i>, of its own tile shape, writes i + 1."""
    kernels = "".join(
        f"""
@kernel
def k{i}(x: InOut[Tile[{i + 1}, 1, f32]]):
    pto.store(x, x * 0 + {i + 1})
"""
        for i in range(len(bounds))
    )
    variants = ", ".join(f"(k{i}, {bound})" for i, bound in enumerate(bounds))
    return f"""{kernels}
select = tier("select", {variants})

@workload
def w(X: Tensor[f32, "n", 1, 1], L: Tensor[i64, "n"]):
    for i in P("n"):
        select.at(L[i])[i](x=X[i])
"""


def expected(bounds: list[int | None], size: int) -> int:
    return 1 + next(i for i, bound in enumerate(bounds) if bound is None or size <= bound)


@TARGETS
@pytest.mark.parametrize(
    "bounds", [[None], [0, None], [4, 9, 20], [1, 2, 3, 4, 5, 6, None], [2048, 8192, None]]
)
def test_the_first_bound_that_is_not_below_the_size(target: str, bounds: list[int | None]) -> None:
    program = execute(program_of(bounds))["w"].compile(target)  # pyright: ignore
    edges = [b + d for b in bounds if b is not None for d in (-1, 0, 1)] + [0, 10**6]
    last = math.inf if bounds[-1] is None else bounds[-1]
    sizes = [s for s in sorted(set(edges)) if 0 <= s <= last]
    x = np.zeros((len(sizes), 1, 1), np.float32)
    program(X=x, L=np.array(sizes, np.int64))
    assert x.ravel().tolist() == [expected(bounds, size) for size in sizes]


@TARGETS
@pytest.mark.parametrize(
    ("bounds", "size"), [([4, 9], 10), ([4, 9], -1), ([None], -1), ([4, None], -(2**63))]
)
def test_no_tier_is_an_error_that_names_size_and_tiers(
    target: str, bounds: list[int | None], size: int
) -> None:
    program = execute(program_of(bounds))["w"].compile(target)  # pyright: ignore
    x = np.zeros((2, 1, 1), np.float32)
    with pytest.raises(PtoError) as caught:
        program(X=x, L=np.array([1, size], np.int64))
    text = str(caught.value)
    assert caught.value.code == "no-tier", text
    assert str(size) in text and "select" in text and all(str(b) in text for b in bounds if b is not None), (
        text
    )
    assert not x.any()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
def test_comparisons_are_logarithmic(count: int) -> None:
    text = program_of([10 * (i + 1) for i in range(count)])
    body = execute(text)["w"].trace().module.entry_workload.body  # pyright: ignore

    def depth(nodes: tuple[ir.Node, ...]) -> int:
        conds = [n for n in nodes if isinstance(n, ir.Cond)]
        return max((1 + max(depth(c.then), depth(c.other)) for c in conds), default=0)

    assert depth(body[0].body) <= math.ceil(math.log2(count + 2))
    assert sum(isinstance(n, ir.Set) for n in ir.walk_nodes(body)) == 1


@TARGETS
def test_a_task_waits_for_whichever_was_selected(target: str) -> None:
    text = program_of([4, None]).replace("select.at(L[i])[i](x=X[i])", "h = select.at(L[i])[i](x=X[i])")
    text += "        k0[i](x=X[i], after=[h])\n"
    program = execute(text)["w"].compile(target)  # pyright: ignore
    x = np.zeros((5, 1, 1), np.float32)
    program(X=x, L=np.array([9, 1, 9, 1, 4], np.int64))
    assert x.ravel().tolist() == [1] * 5


KERNELS = """
@kernel
def a(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x + 1)

@kernel
def b(x: InOut[Tile[4, 8, f32]], n: Scalar[i64]):
    pto.store(x, x + n)
"""


@pytest.mark.parametrize(
    ("line", "code", "found"),
    [
        ("tier('t')", "bad-tiers", "it has no kernels"),
        ("tier('t u', (a, 1))", "bad-tiers", "no identifier"),
        ("tier('t', (a, 2), (a, 2))", "bad-tiers", "the bound of `a` is 2, expected 3 or more"),
        ("tier('t', (a, -1))", "bad-tiers", "the bound of `a` is -1"),
        ("tier('t', (a, None), (a, 2))", "bad-tiers", "takes any size"),
        ("tier('t', (a, 1), (b, 2))", "bad-tiers", "`b` has other parameters than `a`"),
        ("tier('t', (a, True))", "bad-tiers", "expected a kernel and its largest size"),
        ("tier('t', a)", "bad-tiers", "expected a kernel and its largest size"),
        ("tier('t', (a, 1)).at(3)", "outside-workload", "tier `t`"),
        ("in_workload(lambda X: tier('t', (a, 1)).at(1.5))", "bad-operand", "expected an integer"),
        ("in_workload(lambda X: tier('t', (a, 1)).at(X))", "bad-operand", "expected an integer"),
        ("in_workload(lambda X: tier('t', (a, 1)).at(1)(y=X))", "unknown-argument", "no parameter `y`"),
    ],
)
def test_refusals(line: str, code: str, found: str) -> None:
    text = f"""{KERNELS}
def in_workload(use):
    @workload
    def w(X: Tensor[f32, 4, 8]):
        use(X)
    w.trace()
{line}
"""
    with pytest.raises(PtoError) as caught:
        execute(text)
    assert caught.value.code == code, str(caught.value)
    assert found in str(caught.value), str(caught.value)
    assert marked(caught.value) in line


WORKSPACES = """
def variant(n, factor):
    @kernel(
        workspace=lambda p: p.size * factor,
        name=f"variant_{n}",
        cpp_src='''
            PTO_CHECK(context.workspace_bytes == uint64_t(size * factor), "the workspace of this tier");
            char* const bytes = static_cast<char*>(context.workspace);
            for (int64_t i = 0; i < size * factor; ++i) bytes[i] = 1;
            x(0, 0) = float(size * factor);
        ''',
    )
    def k(x: InOut[Tile[1, 1, f32]], size: Scalar[i64], factor: Constexpr[int] = factor): ...

    return k

small, large = variant(0, 16), variant(1, 64)
select = tier("select", (small, 100), (large, None))

@workload
def w(X: Tensor[f32, "n", 1, 1], L: Tensor[i64, "n"]):
    for i in P("n"):
        select.at(L[i])[i](x=X[i], size=L[i])
"""


@pytest.mark.parametrize("sizes", [[], [0], [100, 3], [101, 100], [7, 4000, 99]])
def test_each_tier_asks_for_its_own_workspace(sizes: list[int]) -> None:
    program = execute(WORKSPACES)["w"].compile("cpu")  # pyright: ignore
    x = np.zeros((len(sizes), 1, 1), np.float32)
    program(X=x, L=np.array(sizes, np.int64))
    asked = [size * (16 if size <= 100 else 64) for size in sizes]
    assert x.ravel().tolist() == asked
    assert program.stats.counters["max_workspace_bytes"] == max(asked, default=0)


@pytest.mark.parametrize("name", ["é", "größe", "段", "tier_1"])
def test_a_name_of_any_letters_is_printed_and_read(name: str) -> None:
    source = program_of([4, 9]).replace('"select"', f'"{name}"', 1)
    module = execute(source)["w"].trace().module  # pyright: ignore
    assert "REFUSE" in str(module)
    assert str(parse(str(module))) == str(module)
