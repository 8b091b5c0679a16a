"""Compositions against numpy: through text, builders, `ptoisa` and `pto`, on `cpu` and in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pto_wsp import PTOFunctionBuilder, parse
from pto_wsp.errors import KernelFailed, PtoError
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import For, Instr, KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.isa import TABLE
from pto_wsp.isa.compositions import BLOCK, BY_COMPOSED_MNEMONIC, COMPOSITIONS
from pto_wsp.isa.refused import REFUSED
from pto_wsp.isa.table import BY_MNEMONIC
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import record, replace
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DTYPES, f32, i8
from tests.python.lang.programs import execute, ir_of
from tests.python.targets import ctypes_abi
from tests.slow import mostly_slow


@record
class Case:
    """A composition on tiles: shapes and types of its operands, then of the destination."""

    name: str
    tiles: tuple[tuple[int, int, str], ...]
    rmode: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        return COMPOSITIONS[self.name].operands

    @property
    def typed(self) -> dict[str, tuple[int, int, str]]:
        return dict(zip((*self.operands, "dst"), self.tiles, strict=True))

    def __str__(self) -> str:
        return "-".join([self.name, *("x".join(map(str, tile)) for tile in self.tiles), self.rmode])


def by_text(case: Case) -> KernelFunction:
    """The form of elsewhere; what it prints reads back as the same."""
    stores = COMPOSITIONS[case.name].stores
    params = ", ".join(f"%m_{name}: !pto.memref<gm,...,{tile[2]}>" for name, tile in case.typed.items())
    lines = [f"func @f({params}) {{"]
    declared = [item for item in case.typed.items() if not (stores and item[0] == "dst")]
    lines += [f"  %{name} = alloc_tile : {kind(tile)}" for name, tile in declared]
    lines += [f"  %{name} = tload %m_{name}[0, 0] : {kind(case.typed[name])}" for name in case.operands]
    tiles, word = ", ".join(f"%{name}" for name in case.operands), COMPOSITIONS[case.name].mnemonic
    option = f" {{rmode = {case.rmode}}}" if case.rmode else ""
    types = ", ".join(kind(tile) for _, tile in declared)
    if stores:
        lines.append(f"  {word} {tiles}, %m_dst[0, 0]{option} : {types}")
    else:
        lines += [f"  %dst = {word} {tiles}{option} : {types}", "  tstore %dst, %m_dst[0, 0]"]
    module = parse("\n".join([*lines, "  return", "}"]))
    assert parse(str(module)) == module
    return module.kernels[0]


def by_builder(case: Case) -> KernelFunction:
    builder = PTOFunctionBuilder("f")
    for name, (_, _, dtype) in case.typed.items():
        builder.memref(f"m_{name}", dtype=DTYPES[dtype])
    stores = COMPOSITIONS[case.name].stores
    for name, (rows, cols, dtype) in case.typed.items():
        if not (stores and name == "dst"):
            builder.tile(name, rows, cols, DTYPES[dtype])
    for name in case.operands:
        builder.load(name, f"m_{name}")
    options = {"rmode": case.rmode} if case.rmode else {}
    if stores:
        builder.store_fp("m_dst", *case.operands, **options)
    else:
        getattr(builder, case.name)("dst", *case.operands, **options).store("m_dst", "dst")
    kernel = builder.build()
    assert isinstance(kernel, KernelFunction)
    return kernel


def by_ptoisa(case: Case) -> KernelFunction:
    stores = COMPOSITIONS[case.name].stores
    lines = [f"{n} = ptoisa.tile({r}, {c}, {d})" for n, (r, c, d) in case.typed.items()]
    lines += [f"ptoisa.TLOAD({name}, m_{name})" for name in case.operands]
    word = COMPOSITIONS[case.name].mnemonic.upper().replace(".", "_")
    option = f", rmode='{case.rmode}'" if case.rmode else ""
    lines.append(f"ptoisa.{word}({'m_' * stores}dst, {', '.join(case.operands)}{option})")
    return python_kernel(case, "ptoisa_kernel", [*lines, *(["ptoisa.TSTORE(m_dst, dst)"] * (not stores))])


def by_pto(case: Case) -> KernelFunction:
    tiles = ", ".join(f"m_{name}" for name in case.operands)
    options = f", rmode='{case.rmode}'" if case.rmode else ""
    if COMPOSITIONS[case.name].stores:
        return python_kernel(case, "kernel", [f"pto.store_fp(m_dst, {tiles}{options})"])
    dtype = f", {case.typed['dst'][2]}" if case.name == "mov_fp" else ""
    return python_kernel(case, "kernel", [f"pto.store(m_dst, pto.{case.name}({tiles}{dtype}{options}))"])


def python_kernel(case: Case, decorator: str, lines: Sequence[str]) -> KernelFunction:
    params = ", ".join(
        f"m_{name}: {'Out' if name == 'dst' else 'In'}[Tile[{rows}, {cols}, {dtype}]]"
        for name, (rows, cols, dtype) in case.typed.items()
    )
    body = "\n    ".join(lines)
    return ir_of(execute(f"@{decorator}\ndef k({params}):\n    {body}\n")["k"])


def kind(tile: tuple[int, int, str]) -> str:
    return "!pto.tile<{}x{}x{}>".format(*tile)


FRONTS = (by_text, by_builder, by_ptoisa, by_pto)


def scaled(name: str, source: str, target: str, rmode: str = "") -> Case:
    return Case(name, ((7, 40, source), (1, 40, "f32"), (7, 40, target)), rmode)


def product(m: int, k: int, n: int, dtype: str, scale: str = "f32") -> Case:
    scales = (m, k // BLOCK, scale), (k // BLOCK, n, scale)
    return Case("matmul_mx", ((m, k, dtype), scales[0], (k, n, dtype), scales[1], (m, n, "f32")))


def picked(dtype: str, shape: tuple[int, int] = (3, 20)) -> Case:
    return Case("gatherb", ((8, 16, dtype), (*shape, "i32"), (*shape, dtype)))


CASES = [
    *(scaled("mov_fp", "f32", target) for target in ("f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64")),
    *(scaled("mov_fp", "i32", "i8", rmode) for rmode in ("rint", "round", "floor", "ceil", "trunc")),
    *(scaled("mov_fp", source, "f16") for source in ("f16", "i8", "i32")),
    scaled("mov_fp", "f32", "f32", "floor"),
    *(scaled("store_fp", "f32", target) for target in ("f32", "f16", "i8", "u16")),
    scaled("store_fp", "i32", "i8", "floor"),
    *(product(8, k, 16, "f32") for k in (32, 64, 160)),
    *(product(5, 96, 33, dtype, scale) for dtype, scale in (("bf16", "bf16"), ("f16", "f32"), ("i8", "f32"))),
    *(picked(dtype) for dtype in ("f32", "f16", "bf16", "i8", "i32", "i64")),
    picked("f32", (1, 1)),
    picked("f32", (8, 16)),
]

_WHOLE = {
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def converted(value: np.ndarray, target: str, rmode: str) -> np.ndarray:
    """Convert f32 as the page of instructions says."""
    dtype = DTYPES[target].to_numpy()
    if not DTYPES[target].is_integer:
        return (_WHOLE[rmode](value) if rmode else value).astype(dtype)
    whole = _WHOLE[rmode or "rint"](
        np.nan_to_num(value.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
    )
    low, high = DTYPES[target].integer_range
    clipped = [min(max(int(x), low), high) for x in whole.flat]
    return np.array(clipped, dtype).reshape(value.shape)


def expected(case: Case, arrays: Sequence[np.ndarray]) -> np.ndarray:
    target = case.typed["dst"][2]
    if case.name in ("mov_fp", "store_fp"):
        source, fp = arrays
        with np.errstate(all="ignore"):
            return converted(source.astype(np.float32) * fp, target, case.rmode)
    if case.name == "gatherb":
        source, offsets = arrays
        return source.reshape(-1)[offsets // source.itemsize]
    a, a_scale, b, b_scale = (array.astype(np.float64) for array in arrays)
    return (a * a_scale.repeat(BLOCK, 1)) @ (b * b_scale.repeat(BLOCK, 0))


def random_arrays(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Operands: also values that no element of the destination can hold, and halves."""
    found: list[np.ndarray] = []
    for name in case.operands:
        rows, cols, dtype = case.typed[name]
        if name == "offsets":
            numbers = rng.integers(0, 8 * 16, (rows, cols)) * DTYPES[case.typed["src"][2]].itemsize
        elif DTYPES[dtype].is_integer:
            numbers = rng.integers(-100, 100, (rows, cols))
        else:
            numbers = rng.integers(-400, 400, (rows, cols)) / 8
        found.append(numbers.astype(DTYPES[dtype].to_numpy()))
    if case.name in ("mov_fp", "store_fp") and case.typed["src"][2] == "f32":
        found[0].flat[:5] = [np.nan, np.inf, -np.inf, 3e9, -3e9]
    return found


def agree(case: Case, found: np.ndarray, arrays: Sequence[np.ndarray]) -> bool:
    wanted = expected(case, arrays)
    if case.name != "matmul_mx":
        return bool(np.array_equal(found, wanted) if found.dtype.kind in "iu" else same_floats(found, wanted))
    sizes = expected(case, [np.abs(array.astype(np.float64)) for array in arrays])
    terms = case.typed["a"][1]
    return bool(np.all(np.abs(found - wanted) <= (terms / 8 + 8) * 2.0**-24 * 2 * sizes))


def same_floats(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("front", mostly_slow(FRONTS))
def test_every_composition_against_numpy(
    front: Callable[[Case], KernelFunction], cache: ArtifactCache
) -> None:
    assert {case.name for case in CASES} == COMPOSITIONS.keys()
    kernels = [replace(front(case), name=f"k{number}") for number, case in enumerate(CASES)]
    library = ctypes_abi.load(CpuTarget().build(kernels, cache))
    rng = np.random.default_rng(7)
    for case, kernel in zip(CASES, kernels, strict=True):
        arrays = random_arrays(case, rng)
        rows, cols, dtype = case.typed["dst"]
        for run in (library.call, run_kernel):
            found = np.zeros((rows, cols), DTYPES[dtype].to_numpy())
            assert not run(kernel, [*arrays, found]), str(case)
            assert agree(case, found, arrays), f"{case}, {run}"


# --- tails, destinations that are operands, names -------------------------------------------------------


TAILS = [
    (scaled("mov_fp", "f32", "i8"), {"src": (3, 17), "fp": (1, 17)}, (3, 17)),
    (scaled("store_fp", "i32", "f16"), {"src": (2, 40), "fp": (1, 40)}, (2, 40)),
    (
        product(8, 64, 16, "f32"),
        {"a": (5, 64), "a_scale": (5, 2), "b": (64, 11), "b_scale": (2, 11)},
        (5, 11),
    ),
    (picked("f32"), {"src": (8, 16), "offsets": (2, 7)}, (2, 7)),
]


def failures(kernel: KernelFunction, args: Sequence[np.ndarray], cache: ArtifactCache) -> list[str]:
    """Return what `cpu` and the interpreter say of a run that they must end."""
    artifact = CpuTarget().build([kernel], cache)
    status = ctypes_abi.load(artifact).call(kernel, args)
    assert status > 0
    check = artifact.checks[kernel.name][status - 1]
    with pytest.raises(KernelFailed) as caught:
        run_kernel(kernel, args)
    assert caught.value.loc == check.loc
    return [check.text.message, str(caught.value)]


@pytest.mark.parametrize("case", [case for case, _, _ in TAILS], ids=str)
def test_tails(case: Case, cache: ArtifactCache) -> None:
    shapes, shape = next((shapes, shape) for found, shapes, shape in TAILS if found == case)
    kernel = by_text(case)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    arrays = random_arrays(case, np.random.default_rng(3))
    parts = [
        array[: shapes[n][0], : shapes[n][1]].copy() for n, array in zip(case.operands, arrays, strict=True)
    ]
    for run in (library.call, run_kernel):
        found = np.zeros(shape, DTYPES[case.typed["dst"][2]].to_numpy())
        assert not run(kernel, [*parts, found])
        assert agree(case, found, parts), run


@pytest.mark.parametrize("operand", ["a", "b", "a_scale", "b_scale"])
def test_a_product_needs_all_terms(operand: str, cache: ArtifactCache) -> None:
    case = product(8, 64, 16, "f32")
    arrays = random_arrays(case, np.random.default_rng(3))
    number = case.operands.index(operand)
    arrays[number] = arrays[number][:, :-1].copy() if operand[0] == "a" else arrays[number][:-1].copy()
    messages = failures(by_text(case), [*arrays, np.zeros((8, 16), np.float32)], cache)
    assert all("outside" in message for message in messages), messages


@pytest.mark.parametrize("offset", [6, -6, 1, -4, 512, 510, 2**31 - 1, -(2**31)])
def test_offsets_that_are_of_no_element(offset: int, cache: ArtifactCache) -> None:
    case = picked("f32")
    source, offsets = random_arrays(case, np.random.default_rng(3))
    offsets[1, 4] = offset
    messages = failures(by_text(case), [source, offsets, np.zeros((3, 20), np.float32)], cache)
    assert all("outside" in message for message in messages), messages


def test_byte_offsets_need_whole_rows(cache: ArtifactCache) -> None:
    case = picked("f32")
    source, offsets = random_arrays(case, np.random.default_rng(3))
    failures(by_text(case), [source[:, :-1].copy(), offsets * 0, np.zeros((3, 20), np.float32)], cache)
    kernel, found = by_text(case), np.zeros((3, 20), np.float32)
    run_kernel(kernel, [source[:5].copy(), offsets % (5 * 64), found])
    assert np.array_equal(found, source.reshape(-1)[offsets % (5 * 64) // 4])


@pytest.mark.parametrize("number", range(4))
def test_a_destination_that_is_an_operand(number: int, cache: ArtifactCache) -> None:
    """Operands are read before they are written."""
    case = Case(
        "matmul_mx", ((64, 64, "f32"), (64, 2, "f32"), (64, 64, "f32"), (2, 64, "f32"), (64, 64, "f32"))
    )
    if number in (1, 3):
        case = Case("gatherb", ((4, 4, "i32"), (4, 4, "i32"), (4, 4, "i32")))
        number //= 2
    arrays = random_arrays(case, np.random.default_rng(5))
    if case.name == "gatherb":
        arrays[1] %= 64
    builder, dst = PTOFunctionBuilder("f"), case.operands[number]
    for name, (rows, cols, dtype) in case.typed.items():
        builder.memref(f"m_{name}", dtype=DTYPES[dtype]).tile(name, rows, cols, DTYPES[dtype])
    for name in case.operands:
        builder.load(name, f"m_{name}")
    kernel = getattr(builder, case.name)(dst, *case.operands).store("m_dst", dst).build()
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    for run in (library.call, run_kernel):
        found = np.zeros(case.typed["dst"][:2], arrays[number].dtype)
        assert not run(kernel, [*(array.copy() for array in arrays), found])
        assert agree(case, found, arrays), run


def test_tiles_of_a_composition_take_no_name_of_the_user() -> None:
    """`t` is what tiles between rows are called; here the user's own comes later."""
    builder = PTOFunctionBuilder("f").memref("x", dtype=f32).memref("y", dtype=f32)
    builder.tile("a", 8, 64).tile("s", 1, 64).tile("d", 8, 64, i8).load("a", "x").expands("s", 2.0)
    builder.mov_fp("d", "a", "s").add("t", "a", "a").for_loop("t_1", 0, 1).store("y", "t").end_for()
    kernel = builder.build()
    assert isinstance(kernel, KernelFunction)
    (added,) = [s for s in kernel.body or () if isinstance(s, Instr) and s.op == "add"]
    (loop,) = [s for s in kernel.body or () if isinstance(s, For)]
    assert (added.dst, loop.var) == ("t", "t_1")
    assert {"t", "t_1"}.isdisjoint(s.dst for s in kernel.body or () if isinstance(s, Instr) and s.op != "add")
    x, y = np.ones((8, 64), np.float32), np.zeros((8, 64), np.float32)
    run_kernel(kernel, [x, y])
    assert np.array_equal(y, x + x)


# --- refusals -------------------------------------------------------------------------------------------

HEAD = """\
func @f(%x: !pto.memref<gm,...,f32>, %y: !pto.memref<gm,...,f32>) {
  %a = alloc_tile : !pto.tile<8x64xf32>
  %s = alloc_tile : !pto.tile<1x64xf32>
  %h = alloc_tile : !pto.tile<1x64xf16>
  %n = alloc_tile : !pto.tile<8x64xi32>
  %m = alloc_tile : !pto.tile<8x64xb1>
  %p = alloc_tile : !pto.tile<8x2xf32>
  %q = alloc_tile : !pto.tile<64x16xf32>
  %r = alloc_tile : !pto.tile<2x16xf32>
  %o = alloc_tile : !pto.tile<8x48xf32>
  %a = tload %x[0, 0]
"""
MISTAKES = [
    ("%n = tmov.fp %a", "bad-text", "`tmov.fp` takes src, fp"),
    ("%n = tmov.fp %a, %c", "unknown-text", "tile `c`"),
    ("%n = tmov.fp %a, %p", "shape-mismatch", "`fp` [1, 64], found [8, 2]"),
    ("%n = tmov.fp %a, %h", "dtype-mismatch", "`fp` of f32, found f16"),
    ("%m = tmov.fp %a, %s", "dtype-mismatch", "found b1"),
    ("%n = tmov.fp %a, %s {rmode = up}", "bad-operand", "one of rint, round, floor, ceil, trunc"),
    ("%n = tmov.fp %a, %s {mode = lt}", "bad-operand", "expected the option `rmode`, found `mode`"),
    ("%d = tmov.fp %a, %s", "unknown-name", "declare it first"),
    ("%q = tmov.fp %a, %s", "shape-mismatch", "expected tile<8x64xf32>, found tile<64x16xf32>"),
    ("tstore.fp %a, %s", "bad-text", "the place follows"),
    ("tstore.fp %a, %p, %y[0, 0]", "shape-mismatch", "`fp` [1, 64]"),
    ("tstore.fp %a, %s, %w[0, 0]", "unknown-name", "`w`"),
    ("%d = tstore.fp %a, %s, %y[0, 0]", "bad-text", "expected an instruction"),
    ("tmov.fp %a, %s", "bad-text", "expected a statement"),
    ("%d = tmatmul.mx %a, %p, %q", "bad-text", "takes a, a_scale, b, b_scale"),
    ("%d = tmatmul.mx %o, %p, %q, %r", "shape-mismatch", "multiple of 32 columns, found [8, 48]"),
    ("%d = tmatmul.mx %a, %s, %q, %r", "shape-mismatch", "`a_scale` [8, 2], found [1, 64]"),
    ("%d = tmatmul.mx %a, %p, %r, %q", "shape-mismatch", "`b` [64, 16], found [2, 16]"),
    ("%d = tmatmul.mx %a, %p, %q, %q", "shape-mismatch", "`b_scale` [2, 16], found [64, 16]"),
    ("%d = tmatmul.mx %n, %p, %q, %r", "dtype-mismatch", "`a` of bf16 or f16 or f32 or i16"),
    ("%a = tmatmul.mx %a, %p, %q, %r", "shape-mismatch", "found tile<8x64xf32>"),
    ("%d = tgatherb %a, %a", "dtype-mismatch", "`offsets` of i32, found f32"),
    ("%d = tgatherb %m, %n", "dtype-mismatch", "found b1"),
    ("%a = tgatherb %n, %n", "dtype-mismatch", "found tile<8x64xf32>"),
    ("tassign %a, 0", "no-meaning", "no value depends on it"),
    ("tsync", "no-meaning", "no value depends on it"),
]


@pytest.mark.parametrize(("line", "code", "message"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_mistakes_have_a_name_and_a_place(line: str, code: str, message: str) -> None:
    filled = "".join(f"  %{name} = texpands %1\n" for name in "shnpqro") + "  %m = tcmps %a, %1 {mode = lt}\n"
    with pytest.raises(PtoError) as caught:
        parse(f"{HEAD}{filled}  {line}\n  return\n}}\n")
    assert (caught.value.code, message in str(caught.value)) == (code, True), str(caught.value)
    assert caught.value.loc is not None and caught.value.loc.line == HEAD.count("\n") + 9


def test_the_form_with_roles_names_the_rows() -> None:
    text = str(Module("m", (by_text(picked("i8")),)))
    first = next(line for line in text.splitlines() if "treshape" in line)
    with pytest.raises(PtoError, match=r"the rows that .*: .*reshape, take\nhelp: leave the roles") as caught:
        parse(text.replace(first, "  %dst = tgatherb %src, %offsets"))
    assert caught.value.code == "no-meaning"


def test_builders_refuse_too() -> None:
    def builder() -> PTOFunctionBuilder:
        made = (
            PTOFunctionBuilder("f")
            .memref("x", dtype=f32)
            .tile("a", 8, 64)
            .tile("s", 1, 64)
            .tile("n", 8, 64, i8)
        )
        return made.load("a", "x").expands("s", 2.0)

    steps: list[tuple[Callable[[PTOFunctionBuilder], PTOFunctionBuilder], str]] = [
        (lambda b: b.mov_fp("n", "a"), "2 operands"),
        (lambda b: b.mov_fp("n", "a", "s", "up"), "rint, round, floor"),
        (lambda b: b.mov_fp("n", "a", "s", rmode=3), "rint, round, floor"),
        (lambda b: b.store_fp("x", "a", "s", rmode="up"), "rint, round, floor"),
        (lambda b: b.store_fp("x", "a", "z"), "`z`"),
        (lambda b: b.matmul_mx("d", "a", "a", "a", "a", rmode="rint"), "no options"),
        (lambda b: b.gatherb("d", "a", 3), "`3`"),
    ]
    for step, message in steps:
        with pytest.raises(PtoError) as caught:
            step(builder()).build()
        assert message in str(caught.value) and caught.value.loc is not None, str(caught.value)


def test_compositions_are_words_of_their_own() -> None:
    assert BY_COMPOSED_MNEMONIC.keys().isdisjoint({*BY_MNEMONIC, *REFUSED})
    assert COMPOSITIONS.keys().isdisjoint(TABLE)
    for composition in COMPOSITIONS.values():
        assert set(composition.rows) <= TABLE.keys() and composition.doc.endswith(".")
        made = {s.op for case in CASES if case.name == composition.name for s in ops_of(by_builder(case))}
        assert made == set(composition.rows) - {"store"}


def ops_of(kernel: KernelFunction) -> list[Instr]:
    return [s for s in kernel.body or () if isinstance(s, Instr)]
