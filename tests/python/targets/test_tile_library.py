"""The tile library: every row of the table as a C++ function, called from a kernel written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from pto_wsp.errors import KernelFailed
from pto_wsp.isa.forms import Form, result_type
from pto_wsp.isa.meaning import COMPARE_MODES
from pto_wsp.isa.table import TABLE, Instruction
from pto_wsp.runtime.program import Program
from pto_wsp.types.dtype import DType, b1, f32, i32, i64, u8
from pto_wsp.types.quantised import CHUNK, rounded_cols
from pto_wsp.types.tile import TileType
from tests.python.isa.operands import PLACE, QUANTISED, RUN, fitting, has_place, operand_shapes, operand_types
from tests.python.lang.programs import execute

ROWS, COLS, K = 7, 37, 21
INPUTS = {"A": f32, "B": f32, "C": f32, "M": b1, "N": i32, "U": i64, "V": i64, "W": u8}
OUTPUTS = {f32: "F", i32: "I", i64: "P", b1: "G", u8: "R"}
TYPES = {f32: "float", i32: "int32_t", i64: "int64_t", b1: "Bool", u8: "uint8_t"}
COMPUTED = [row for row in TABLE.values() if row.numpy is not None]
MOVES = {
    "load": "load(t, A);",
    "store": "load(t, A);",
    "gather": "gather(t, A, n, arena);",
    "scatter": "scatter(F, n, a, arena); return;",
}
"""What moves data to or from the output F."""


def data_type(row: Instruction) -> DType:
    return next(t for t in (f32, i64) if t in row.dtypes)


def attributes(row: Instruction, shape: tuple[int, int]) -> dict[str, object]:
    """Return the attributes that the tested call of a row has."""
    dtype = {Form.CONVERT: i32, Form.IOTA: i64}.get(row.form, data_type(row))
    attrs: dict[str, object] = {
        "row": PLACE[0],
        "col": PLACE[1],
        "numpy_source": data_type(row).to_numpy(),
        "shape": shape,
        "dtype": dtype,
        "mode": "le",
        "run": RUN,
        "format": QUANTISED.name,
        "valid_shape": shape,
    }
    if row.form is Form.QUANTISE:
        attrs["valid_shape"] = (shape[0], rounded_cols(CHUNK))
    return attrs | {"trans_a": False, "trans_b": False, "numpy_dtype": dtype.to_numpy()}


def result_dtype(row: Instruction) -> DType:
    shape = (ROWS, COLS)
    attrs = attributes(row, shape)
    shapes = operand_shapes(row, attrs, shape, K)
    types = [TileType(*s, t) for s, t in zip(shapes, operand_types(row, data_type(row)), strict=True)]
    return result_type(row.form, types, attrs).dtype


def inputs(row: Instruction) -> list[str]:
    """Return the parameters that the operands of a row come from."""
    free = list(INPUTS)
    found = []
    for dtype in operand_types(row, data_type(row)):
        found.append(next(name for name in free if INPUTS[name] is dtype))
        free.remove(found[-1])
    return found


def call(row: Instruction) -> str:
    """Return the C++ statement that computes a row into the tile `t`."""
    arguments = [name.lower() for name in inputs(row)]
    match row.form:
        case Form.COMPARE | Form.COMPARE_SCALAR:
            arguments.insert(0, f"static_cast<Mode>({COMPARE_MODES.index('le')})")
        case Form.MERGE_RUNS:
            arguments += [str(RUN), "arena"]
        case Form.MATMUL | Form.MATMUL_BIAS:
            arguments.append("arena")
        case Form.EXTRACT | Form.INSERT | Form.SET:
            arguments += map(str, PLACE)
        case Form.MATMUL_ACC:
            return f"mov(t, a); {row.name}(t, b, c, arena);"
        case Form.MATMUL_QUANTISED:
            return f"mov(t, a); {row.name}<Format<8, 128, 32, 32, 0, 0>>(t, b, w, arena);"
        case _:
            pass
    arguments += ["scalar"] * row.form.num_scalars
    if row.name == "sort":
        arguments.append("arena")
    return f"{row.name}({', '.join(['t', *arguments])});"


def case(number: int, names: list[str], dtype: DType, text: str) -> str:
    loads = "".join(
        f"auto {n.lower()} = arena.tile<{TYPES[INPUTS[n]]}>({n}.rows(), {n}.cols()); load({n.lower()}, {n}); "
        for n in names
    )
    out = OUTPUTS[dtype]
    made = f"auto t = arena.tile<{TYPES[dtype]}>({out}.rows(), {out}.cols());"
    scalar = "const int64_t scalar = 5;" if dtype is i64 else "const float scalar = 0.3f;"
    return f"case {number}: {{ {loads}{made} [[maybe_unused]] {scalar} {text} store({out}, t); break; }}"


def program() -> Program:
    cases = [case(i, inputs(row), result_dtype(row), call(row)) for i, row in enumerate(COMPUTED)]
    for text in MOVES.values():
        names = (["A"] if ", a," in text else []) + (["N"] if ", n," in text else [])
        cases.append(case(len(cases), names, f32, text))
    memory = "alignas(64) static thread_local char memory[1 << 21];\nArena arena(memory, sizeof memory);\n"
    body = memory + "switch (op) {\n" + "\n".join(cases) + "\n}"
    params = [f"{n}: In[Tensor[{t}, DYN, DYN]]" for n, t in INPUTS.items()]
    params += [f"{n}: InOut[Tensor[{t}, DYN, DYN]]" for t, n in OUTPUTS.items()]
    tensors = [
        f'{n}: Tensor[{t}, "{n}0", "{n}1"]'
        for n, t in [*INPUTS.items(), *((n, t) for t, n in OUTPUTS.items())]
    ]
    passed = ", ".join(f"{n}={n}" for n in [*INPUTS, *OUTPUTS.values()])
    text = (
        f"@kernel(cpp_src=BODY)\n"
        f"def rows({', '.join(params)}, op: Scalar[i64]): ...\n\n"
        f"@workload\ndef w({', '.join(tensors)}, op: Scalar[i64]):\n    rows({passed}, op=op)\n"
    )
    return execute(text, {"BODY": body})["w"].compile("cpu")


@pytest.fixture(scope="module")
def library() -> Program:
    return program()


def run(library: Program, op: int, arrays: Mapping[str, np.ndarray]) -> None:
    types = INPUTS | {name: dtype for dtype, name in OUTPUTS.items()}
    library(**({n: np.zeros((1, 1), t.to_numpy()) for n, t in types.items()} | dict(arrays)), op=op)


@pytest.mark.parametrize("shape", [(ROWS, COLS), (1, 1), (33, 64), (0, 5), (5, 2)])
@pytest.mark.parametrize("row", COMPUTED, ids=lambda row: row.name)
def test_a_row_is_a_function(row: Instruction, shape: tuple[int, int], library: Program) -> None:
    if not has_place(row, shape):
        pytest.skip("no part lies inside")
    rng = np.random.default_rng(4)
    attrs = attributes(row, shape)
    names = inputs(row)
    arrays = [
        rng.integers(-9, 9, s).astype(INPUTS[n].to_numpy())
        if INPUTS[n] is not f32
        else rng.uniform(0.2, 2, s)
        for n, s in zip(names, operand_shapes(row, attrs, shape, K), strict=True)
    ]
    arrays = [a.astype(INPUTS[n].to_numpy()) for n, a in zip(names, fitting(row, arrays, rng), strict=True)]
    dtype = result_dtype(row)
    scalars = [np.int64(5) if dtype is i64 else np.float32(0.3)] * row.form.num_scalars
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        wanted = np.asarray(row.numpy(*arrays, *scalars, attrs)).astype(dtype.to_numpy())
    found = np.zeros(wanted.shape, wanted.dtype)
    run(library, COMPUTED.index(row), {**dict(zip(names, arrays, strict=True)), OUTPUTS[dtype]: found})
    if row.bound.kind == "exact":
        assert np.array_equal(found, wanted, equal_nan=dtype is f32)
    else:
        np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=1e-5)


def test_moves(library: Program) -> None:
    rng = np.random.default_rng(5)
    a, n = rng.random((9, COLS), np.float32), np.array([[3, 0, 8]], np.int32)
    numbers = {name: len(COMPUTED) + i for i, name in enumerate(MOVES)}
    for name in ("load", "store"):
        found = np.zeros_like(a)
        run(library, numbers[name], {"A": a, "F": found})
        assert np.array_equal(found, a)
    found = np.zeros((3, COLS), np.float32)
    run(library, numbers["gather"], {"A": a, "N": n, "F": found})
    assert np.array_equal(found, a[n[0]])
    target = np.zeros_like(a)
    run(library, numbers["scatter"], {"A": a[:3], "N": n, "F": target})
    expected = np.zeros_like(a)
    expected[n[0]] = a[:3]
    assert np.array_equal(target, expected)
    with pytest.raises(KernelFailed, match="a row outside of the view"):
        run(library, numbers["gather"], {"A": a, "N": n + 1, "F": found})


def test_every_row_has_a_function() -> None:
    assert TABLE.keys() == {row.name for row in COMPUTED} | MOVES.keys()


def test_wrong_shapes_end_the_kernel(library: Program) -> None:
    add = next(i for i, row in enumerate(COMPUTED) if row.name == "add")
    a, b = np.ones((3, 4), np.float32), np.ones((3, 5), np.float32)
    with pytest.raises(KernelFailed, match="valid shapes of the operands do not fit"):
        run(library, add, {"A": a, "B": b, "F": a.copy()})
    large = np.ones((2000, 2000), np.float32)
    with pytest.raises(KernelFailed, match="workspace is too small"):
        run(library, add, {"A": large, "B": large, "F": large.copy()})
