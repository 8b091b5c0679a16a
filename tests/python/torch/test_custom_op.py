"""Workloads as torch operators: eager, compiled, mutating, with jagged tensors, without gradients."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    bf16,
    f32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import BadReturn, CallArgument, NoGradient, UnknownParameter, WrongDType, WrongShape
from pto_wsp.ops import functional as F

torch = pytest.importorskip("torch")

from pto_wsp.torch import CustomOp, custom_op  # noqa: E402

NUMBERS = count()


def named(workload: Any, **options: Any) -> CustomOp:
    return custom_op(f"tests::op{next(NUMBERS)}", workload, **options)


@kernel
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)


@workload
def scale_rows(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128], factor: Scalar[f32]):
    for rows in P.tiles("n", 64):
        scale[rows](x=X[rows], y=Y[rows], factor=factor)


@kernel
def add_up(x: In[Tensor[f32, DYN, 64]], y: Out[Tile[1, 64, f32]]):
    total = pto.zeros((1, 64))
    for r in pto.tiles(x.rows, 16):
        total = total + pto.colsum(pto.load(x[r]))
    pto.store(y, total)


@workload
def sum_rows(seq: Ragged["batch"], X: Tensor[f32, "tokens", 64], Y: Tensor[f32, "batch", 64]):
    for b in P("batch"):
        add_up[b](x=X[seq[b]], y=Y[b : b + 1])


def test_a_returned_tensor_is_allocated() -> None:
    op = named(scale_rows, returns=["Y"])
    x = torch.randn(100, 128)
    assert torch.equal(op(X=x, factor=2.0), x * 2)
    assert op.schema == "(Tensor X, float factor) -> Tensor"
    assert op.program.stats is not None and op.program.stats.tasks == 2


def test_others_are_mutated_in_place() -> None:
    op = named(scale_rows)
    x, y = torch.randn(70, 128), torch.zeros(70, 128)
    assert op(X=x, Y=y, factor=3.0) is None
    assert torch.equal(y, x * 3)
    assert op.schema == "(Tensor X, Tensor(b!) Y, float factor) -> ()"


@pytest.mark.parametrize("returns", [["Y"], []], ids=["returned", "mutated"])
def test_torch_accepts_the_operator(returns: list[str]) -> None:
    """Schema, fake kernel and registration, by torch's own check."""
    op = named(scale_rows, returns=returns)
    x = torch.randn(10, 128)
    arguments = (x, 2.0) if returns else (x, torch.zeros(10, 128), 2.0)
    assert set(torch.library.opcheck(op.op, arguments).values()) == {"SUCCESS"}


def test_it_compiles_in_one_graph_for_any_size() -> None:
    returned, mutated = named(scale_rows, returns=["Y"]), named(scale_rows)

    def both(x: Any) -> Any:
        y = torch.zeros_like(x)
        mutated(X=x.abs(), Y=y, factor=3.0)
        return returned(X=x, factor=2.0) + y

    compiled = torch.compile(both, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 100, 64):
        x = torch.randn(rows, 128)
        assert torch.equal(compiled(x), both(x))


def test_jagged_tensors_give_values_and_offsets() -> None:
    op = named(sum_rows, returns=["Y"])
    assert op.schema == "(Tensor seq_offsets, Tensor X) -> Tensor"
    parts = [torch.randn(n, 64) for n in (3, 40, 1)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    expected = torch.stack([p.sum(0) for p in parts])
    found = op(X=nested)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.equal(op(X=torch.cat(parts), seq=torch.tensor([0, 3, 43, 44])), found)
    compiled = torch.compile(lambda x: op(X=x), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(nested), found)


def test_a_sparse_axis_takes_a_pair() -> None:
    @kernel
    def take(x: In[Tile[1, 64, f32]], y: InOut[Tile[1, 64, f32]]):
        pto.store(y, y + x)

    @workload
    def gather(near: Sparse["batch"], X: Tensor[f32, "n", 64], Y: Tensor[f32, "batch", 64]):
        for b in P("batch"):
            for j in P.sel(near[b]):
                take[b, j](x=X[j : j + 1], y=Y[b : b + 1])

    op = named(gather)
    assert op.schema == "(Tensor near_offsets, Tensor near_indices, Tensor X, Tensor(d!) Y) -> ()"
    x, y = torch.randn(5, 64), torch.zeros(2, 64)
    op(near=(torch.tensor([0, 2, 3]), torch.tensor([4, 0, 1])), X=x, Y=y)
    assert torch.allclose(y, torch.stack([x[4] + x[0], x[1]]))


def test_bound_values_are_no_arguments() -> None:
    op = named(scale_rows(factor=4.0), returns=["Y"])
    assert op.schema == "(Tensor X) -> Tensor"
    assert torch.equal(op(X=torch.ones(2, 128)), torch.full((2, 128), 4.0))


def test_library_operators_are_workloads_too() -> None:
    op = named(F.workload("gelu", bf16), returns=["Y"])
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    found = op(X=x)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), torch.nn.functional.gelu(x.float()), atol=0.02)


def test_gradients_are_refused_by_name() -> None:
    returned, mutated = named(scale_rows, returns=["Y"]), named(scale_rows)
    x = torch.randn(3, 128, requires_grad=True)
    with pytest.raises(NoGradient, match=returned.name):
        returned(X=x, factor=1.0).sum().backward()
    with pytest.raises(NoGradient, match=mutated.name):
        mutated(X=x, Y=torch.zeros(3, 128), factor=1.0)
    with torch.no_grad():
        mutated(X=x, Y=torch.zeros(3, 128), factor=1.0)


def test_a_formula_gives_a_gradient() -> None:
    op = named(scale_rows(factor=4.0), returns=["Y"])
    op.op.register_autograd(lambda _, grad: grad * 4)
    x = torch.randn(3, 128, requires_grad=True)
    op(X=x).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 128), 4.0))


def test_mistakes_are_named() -> None:
    op = named(scale_rows, returns=["Y"])
    x = torch.zeros(3, 128)
    with pytest.raises(CallArgument, match="misses `factor`"):
        op(X=x)
    with pytest.raises(UnknownParameter, match="did you mean `X`"):
        op(x=x, factor=1.0)
    with pytest.raises(WrongDType):
        op(X=x.double(), factor=1.0)
    with pytest.raises(WrongShape):
        op(X=torch.zeros(3, 64), factor=1.0)
    with pytest.raises(UnknownParameter):
        named(scale_rows, returns=["Z"])
    with pytest.raises(BadReturn, match="no task writes it"):
        named(scale_rows, returns=["X"])


def test_sizes_that_no_tensor_decides_are_arguments() -> None:
    @kernel
    def one(y: Out[Tile[64, 128, f32]]):
        pto.store(y, pto.full((y.rows, 128), 1.0))

    @workload
    def fill(n: DenseDyn, Y: Tensor[f32, "n", 128]):
        for rows in P.tiles("n", 64):
            one[rows](y=Y[rows])

    op = named(fill, returns=["Y"])
    assert op.schema == "(SymInt n) -> Tensor"
    assert torch.equal(op(n=70), torch.ones(70, 128))
    compiled = torch.compile(lambda n: op(n=n), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(3), torch.ones(3, 128))
    bound = named(fill(n=DenseDyn(5)), returns=["Y"])
    assert bound.schema == "() -> Tensor"
    assert torch.equal(bound(), torch.ones(5, 128))


def test_elements_that_no_task_writes_are_zero() -> None:
    @workload
    def first(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128]):
        scale(x=X[0:1], y=Y[0:1], factor=1.0)

    found = named(first, returns=["Y"])(X=torch.ones(9, 128))
    assert np.array_equal(found.sum(1).numpy(), [128.0] + [0.0] * 8)
