"""Products of bf16 that are summed in pairs: where the processor does so, and what they are."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.cpu import features
from pto_wsp.targets.cpu.features import Features
from pto_wsp.types.dtype import bf16, f32
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_emit import assembly
from tests.python.targets.test_cpu_matmul import normal, product, run

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

PAIRED = "g++ -DPTO_PAIR_DOTS"
"""A pair is two multiply-adds in turn, so that its sums are those of single terms, bit for bit."""

TALL, FLAT = product(40, 70, 300, bf16, bf16), product(9, 20, 300, bf16, bf16)


@needs_gcc
def test_sums_of_pairs_are_those_of_single_terms(
    cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = []
    for compiler in ("g++", PAIRED):
        monkeypatch.setenv("CXX", compiler)
        libraries.append(ctypes_abi.load(registry.get("cpu").build([TALL, FLAT], cache)))
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
    x, packed = normal(3, 70, 129).astype(bf16.to_numpy()), PackedMatrix(normal(4, 129, 100), bf16)
    widened = matmul(x, packed)
    monkeypatch.setenv("CXX", PAIRED)
    monkeypatch.setattr(Features, "has_pair_dots", True)
    assert matmul(x, packed).tobytes() == widened.tobytes()


@needs_gcc
def test_the_instruction_is_used_for_bf16_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if features.resolve_features().machine != "x86_64":
        pytest.skip("assembly of x86-64")
    monkeypatch.setattr(features, "_cpu_info", lambda: (frozenset(features.KNOWN["x86_64"]), "AuthenticAMD"))
    assert "vdpbf16ps" in assembly([TALL])
    others = [product(40, 70, 300, left, right) for left, right in ((f32, bf16), (bf16, f32))]
    assert "vdpbf16ps" not in assembly(others)


def test_who_has_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    monkeypatch.delenv(features.VARIABLE, raising=False)
    all_names = frozenset(features.KNOWN["x86_64"])
    for vendor, names, expected in (
        ("AuthenticAMD", all_names, True),
        ("AuthenticAMD", all_names - {"avx512vl"}, False),
        ("GenuineIntel", all_names, False),
    ):
        monkeypatch.setattr(features, "_cpu_info", lambda found=(names, vendor): found)
        assert features.resolve_features().has_pair_dots == expected
        is_fast = vendor == "AuthenticAMD"
        assert ("-DPTO_FAST_SEQUENCES" in features.resolve_features().flags) == is_fast
    monkeypatch.setenv(features.VARIABLE, ",".join(features.KNOWN["x86_64"]))
    assert features.resolve_features().has_pair_dots
    assert "-mavx512bf16" in features.resolve_features().flags
