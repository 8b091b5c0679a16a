"""What a zero, a call or a pass makes unnecessary is still evaluated where it can fail."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import InOut, P, Scalar, Tensor, Tile, i32, i64, kernel, pto, slot_i64, slot_set_i64, workload
from pto_wsp.errors import BadExpression, KernelFailed, PtoError
from pto_wsp.passes.pipeline import parse_pipeline, run_pipeline
from pto_wsp.runtime.program import Program
from pto_wsp.text.modules import parse


@kernel
def acc(x: InOut[Tile[4, 16, i32]], s: Scalar[i64]):
    pto.store(x, x + s)


@workload
def argument(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    acc(A[0:1], L[k] * 0)


@workload
def division(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    acc(A[0:1], (7 // (k - 5)) * 0 + L[0])


@workload
def offset(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    acc(A[0 * L[k] : 0 * L[k] + 1], 3)


@workload
def condition(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    with P.when(L[k] * 0 == 0):
        acc(A[0:1], 3)


@workload
def slot(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    slot_set_i64(0, L[k] * 0)
    acc(A[0:1], slot_i64(0))


@workload
def extent(A: Tensor[i32, "n", 16], k: Scalar[i64], L: Tensor[i32, "p"]):
    for i in P.range(L[k] * 0 + 1):
        acc(A[i : i + 1], 3)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("function", [argument, division, offset, condition, slot, extent])
def test_nothing_times_zero_is_dropped(function, target: str) -> None:
    program = function.compile(target)
    arrays = {"A": np.zeros((4, 16), np.int32), "L": np.zeros(2, np.int32)}
    program(**arrays, k=1)
    with pytest.raises(BadExpression):
        program(**arrays, k=5)


NEVER = False


@kernel
def never(x: InOut[Tile[4, 16, i32]], s: Scalar[i64]):
    t = pto.load(x)
    if 7 // s > 1 and NEVER:
        t = t + 1
    pto.store(x, t)


@kernel
def always(x: InOut[Tile[4, 16, i32]], s: Scalar[i64]):
    t = pto.load(x)
    if 7 // s > 1 or not NEVER:
        t = t + 1
    pto.store(x, t)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("function", [never, always])
def test_a_constant_drops_no_fault_before_it(function, target: str) -> None:
    @workload
    def once(A: Tensor[i32, 4, 16], k: Scalar[i64]):
        function(A, k)

    program, array = once.compile(target), np.zeros((4, 16), np.int32)
    program(A=array, k=7)
    assert (array == (function is always)).all()
    with pytest.raises(KernelFailed):
        program(A=array, k=0)


CALLS = """// PTO Module: m
// Entry: @main

// Function Type: InCore (tile-level computation)
func @put(%y: !pto.memref<gm,1x1,i64> {out, tile}, %s: i64) {
  // Tile Declarations
  %t = alloc_tile : !pto.tile<1x1xi64>
  // Instructions
  %t = texpands %s : i64, !pto.tile<1x1xi64>
  tstore %t, %y[:, :]
  return
}

// Function Type: Orchestration (control flow only)
func @callee(%Y: !pto.memref<gm,1x1,i64>, %unused: i64) {
  CALL @put(%Y[:, :], 5)
  return
}

// Function Type: Orchestration (control flow only)
func @main(%Y: !pto.memref<gm,1x1,i64>, %k: i64) {
  BODY
  return
}
"""


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("pipeline", ["inline", "inline,dce"])
@pytest.mark.parametrize(
    "body",
    [
        "CALL @callee(%Y[:, :], 7 // %k)",
        "%v = u64(%k - 1) : i64\n  CALL @put(%Y[:, :], 5)",
    ],
)
def test_calls_and_passes_drop_no_fault(body: str, pipeline: str, target: str) -> None:
    module = parse(CALLS.replace("BODY", body), "m.pto")
    program = Program(run_pipeline(module, parse_pipeline(pipeline)), {}, target)
    y = np.zeros((1, 1), np.int64)
    program(Y=y, k=1)
    assert y[0, 0] == 5
    with pytest.raises(BadExpression):
        program(Y=y, k=0)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_kernel_checks_u64(target: str) -> None:
    text = CALLS.replace("BODY", "CALL @put(%Y[:, :], %k)")
    text = text.replace("texpands %s", "texpands (u64(%s))")
    program = Program(parse(text, "m.pto"), {}, target)
    y = np.zeros((1, 1), np.int64)
    program(Y=y, k=3)
    assert y[0, 0] == 3
    with pytest.raises(PtoError) as caught:
        program(Y=y, k=-3)
    assert isinstance(caught.value, (KernelFailed, BadExpression))
