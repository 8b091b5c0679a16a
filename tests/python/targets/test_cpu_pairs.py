"""Products of bf16 that are summed in pairs: where the processor does so, and what they are."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu import features
from pto_wsp.targets.cpu.features import Features
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import bf16, f32
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_emit import assembly
from tests.python.targets.test_cpu_matmul import normal, product, run

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

PAIRED = "g++ -DPTO_PAIR_DOTS"
"""A pair is two multiply-adds in turn, so that its sums are those of single terms, bit for bit."""

BY_HAND = "g++ -DPTO_AMX_BY_HAND"
"""Matrix registers in plain C++: no processor has to have them."""

TALL, FLAT = product(40, 70, 300, bf16, bf16), product(9, 20, 300, bf16, bf16)


SIZES = (
    (1, 1, 1),
    (7, 17, 2),
    (3, 9, 0),
    (16, 16, 32),
    (17, 33, 31),
    (33, 65, 96),
    (5, 70, 257),
    (40, 70, 300),
)


def without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the matrix registers from the processor for one test."""
    names = set(features.resolve_features().names) - {"amx_bf16"}
    monkeypatch.setenv(features.VARIABLE, ",".join(names))


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, ...]:
    """Return operands of bf16 with NaN beyond their last rows and columns."""
    whole_a, whole_b = np.full((40, 300), np.nan), np.full((300, 70), np.nan)
    whole_a[:m, :k], whole_b[:k, :n] = normal(1, m, k), normal(2, k, n)
    return tuple(x.astype(bf16.to_numpy()) for x in (whole_a, whole_b))


@needs_gcc
def test_products_in_matrix_registers(cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = []
    has_amx = "amx_bf16" in features.resolve_features().names
    for compiler in (BY_HAND, "g++") if has_amx else (BY_HAND,):
        monkeypatch.setenv("CXX", compiler)
        libraries.append(ctypes_abi.load(CpuTarget().build([TALL], cache)))
    for m, n, k in SIZES:
        a, b = operands(m, n, k)
        a, b = a[:m, :k], b[:k, :n]
        by_hand, *real = (run(library, TALL, a, b) for library in libraries)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = 2.0**-23 * (k + 2) * (abs(a.astype(np.float64)) @ abs(b.astype(np.float64)))
        assert (abs(by_hand - exact) <= bound).all(), (m, n, k)
        assert all(found.tobytes() == by_hand.tobytes() for found in real), (m, n, k)
        last = run(libraries[0], TALL, a[m - 1 :], b)
        assert last.tobytes() == by_hand[m - 1 :].tobytes(), (m, n, k)


@needs_gcc
def test_sums_of_pairs_are_those_of_single_terms(
    cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_amx(monkeypatch)
    libraries = []
    for compiler in ("g++", PAIRED):
        monkeypatch.setenv("CXX", compiler)
        libraries.append(ctypes_abi.load(CpuTarget().build([TALL, FLAT], cache)))
    assert libraries[0] is not libraries[1]
    for kernel in (TALL, FLAT):
        rows, depth = kernel.params[0].type.shape
        cols = kernel.params[1].type.cols
        for m, n, k in (
            (rows, cols, depth),
            (rows, cols, 129),
            (1, 1, 1),
            (7, 17, 2),
            (5, cols, 257),
            (3, 9, 0),
        ):
            whole_a, whole_b = np.full((rows, depth), np.nan), np.full((depth, cols), np.nan)
            whole_a[:m, :k], whole_b[:k, :n] = normal(1, m, k), normal(2, k, n)
            a, b = (x.astype(bf16.to_numpy()) for x in (whole_a, whole_b))  # NaN beyond the valid parts
            single, paired = (run(library, kernel, a[:m, :k], b[:k, :n]) for library in libraries)
            assert single.tobytes() == paired.tobytes(), (m, n, k)
            assert not np.isnan(single).any()


@needs_gcc
def test_rows_of_bf16_are_not_widened_where_there_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_amx(monkeypatch)
    x, packed = normal(3, 70, 129).astype(bf16.to_numpy()), PackedMatrix(normal(4, 129, 100), bf16)
    widened = matmul(x, packed)
    monkeypatch.setenv("CXX", PAIRED)
    monkeypatch.setattr(Features, "has_pair_dots", True)
    assert matmul(x, packed).tobytes() == widened.tobytes()


@needs_gcc
def test_the_instruction_is_used_for_bf16_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if features.resolve_features().machine != "x86_64":
        pytest.skip("assembly of x86-64")
    others = [product(40, 70, 300, left, right) for left, right in ((f32, bf16), (bf16, f32))]
    all_names = frozenset(features.KNOWN["x86_64"])
    for name, missing in (("vdpbf16ps", {"amx_bf16"}), ("tdpbf16ps", set())):
        found = (all_names - missing, "AuthenticAMD")
        monkeypatch.setattr(features, "_cpu_info", lambda found=found: found)
        assert name in assembly([TALL])
        assert name not in assembly(others)


def test_who_has_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    monkeypatch.delenv(features.VARIABLE, raising=False)
    all_names = frozenset(features.KNOWN["x86_64"])
    for vendor, names, expected in (
        ("AuthenticAMD", all_names, True),
        ("AuthenticAMD", all_names - {"avx512vl"}, False),
        ("GenuineIntel", all_names - {"amx_bf16"}, False),
        ("GenuineIntel", all_names, True),
    ):
        monkeypatch.setattr(features, "_cpu_info", lambda found=(names, vendor): found)
        assert features.resolve_features().has_pair_dots == expected
        is_fast = vendor == "AuthenticAMD"
        assert ("-DPTO_FAST_SEQUENCES" in features.resolve_features().flags) == is_fast
    monkeypatch.setenv(features.VARIABLE, ",".join(features.KNOWN["x86_64"]))
    assert features.resolve_features().has_pair_dots
    assert "-mavx512bf16" in features.resolve_features().flags
