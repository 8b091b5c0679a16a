"""Arrays of other libraries: taken in place through DLPack, or refused by name."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from pto_wsp import (
    InOut,
    MemLayout,
    P,
    Program,
    Ragged,
    Sparse,
    Tensor,
    Tile,
    bf16,
    f16,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import PtoError, ReadOnlyArray, UnusableArray, WrongDType, WrongRank, WrongValue
from pto_wsp.ops import functional as F
from pto_wsp.ops.attention import BatchDecode
from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.planner import AttentionPlanner
from pto_wsp.runtime.dlpack import as_numpy
from pto_wsp.types import DType

CPU, CUDA, CUDA_HOST = 1, 2, 3
INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6


class Other:
    """An array of numpy as an object of another library, which lends it by numpy's own capsules."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class OldOther:
    """One that knows no `max_version`, and no device."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Lender:
    """A producer of its own: a capsule whose every field the test decides, and which counts its end.

    The fields are packed by hand, as dlpack.h lays them out on 64-bit machines. What a capsule calls when it
    ends must outlive it: every lender stays alive.
    """

    everyone: ClassVar[list[Lender]] = []

    def __init__(
        self,
        array: np.ndarray,
        code: int,
        bits: int,
        lanes: int = 1,
        device: int = CPU,
        offset: int = 0,
        strides: bool = True,
        major: int | None = None,
        flags: int = 0,
    ) -> None:
        self.array = array
        self.device = device
        self.released = 0
        rank = array.ndim
        self.shape = (ctypes.c_int64 * rank)(*array.shape)
        self.strides = (ctypes.c_int64 * rank)(*(s // array.itemsize for s in array.strides))
        data = array.ctypes.data - offset if array.size else 0
        tensor = np.zeros(6, np.uint64)
        tensor[0] = data
        tensor[1] = device
        tensor[2] = rank | code << 32 | bits << 40 | lanes << 48
        tensor[3] = ctypes.addressof(self.shape)
        tensor[4] = ctypes.addressof(self.strides) if strides else 0
        tensor[5] = offset
        if major is None:
            self.name, words = b"dltensor", [*tensor, 0, 0]
        else:
            self.name, words = b"dltensor_versioned", [major, 0, 0, flags, *tensor]
        self.memory = np.array(words, np.uint64)
        self.release = RELEASE(self._release)
        self.everyone.append(self)

    def _release(self, _: int) -> None:
        self.released += 1

    def __dlpack__(self, max_version: tuple[int, int] | None = None) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(self.memory.ctypes.data, self.name, ctypes.cast(self.release, ctypes.c_void_p))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def imported(value: object) -> np.ndarray:
    return as_numpy("X", value)


def doubled(dtype: DType) -> Program:
    @kernel
    def double(x: InOut[Tile[4, 8, dtype]]):
        pto.store(x, x + x)

    @workload
    def run(X: Tensor[dtype, "n", 8]):
        for rows in P.tiles("n", 4):
            double[rows](x=X[rows])

    return run.compile("cpu")


NUMBERS = "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 ?".split()


@pytest.mark.parametrize("kind", [Other, OldOther])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_element_type_lies_in_place(name: str, kind: type[Other | OldOther]) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(name)
    found = imported(kind(array))
    assert found.dtype == array.dtype and np.array_equal(found, array)
    assert found.ctypes.data == array.ctypes.data and found.strides == array.strides
    found[1, 2, 3] = 0
    assert array[1, 2, 3] == 0


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i32, i64], ids=str)
def test_programs_write_in_place(dtype: DType) -> None:
    array = np.arange(80).reshape(10, 8).astype(dtype.to_numpy())
    code = {"f": FLOAT, "i": INT}[dtype.kind] if dtype is not bf16 else BFLOAT
    lender = Lender(array, code, dtype.itemsize * 8)
    expected = array + array
    doubled(dtype)(X=lender)
    assert np.array_equal(array, expected)


@pytest.mark.parametrize("major", [None, 1])
def test_a_part_of_memory_at_an_offset(major: int | None) -> None:
    whole = np.arange(200, dtype=np.float32).reshape(10, 20)
    part = whole[2:9, 4:12]
    lender = Lender(part, FLOAT, 32, offset=part.ctypes.data - whole.ctypes.data, major=major)
    found = imported(lender)
    assert found.strides == (80, 4) and np.array_equal(found, part)
    without = Lender(whole, FLOAT, 32, strides=False, major=major)
    assert np.array_equal(imported(without), whole)


@pytest.mark.parametrize("major", [None, 1])
def test_memory_is_given_back_once_and_not_before_its_end(major: int | None) -> None:
    array = np.ones((10, 8), np.float32)
    lender = Lender(array, FLOAT, 32, major=major)
    found = imported(lender)[2:, 3:]
    gc.collect()
    assert lender.released == 0
    del found
    gc.collect()
    assert lender.released == 1
    doubled(f32)(X=lender)
    gc.collect()
    assert lender.released == 2 and (array == 2).all()


@pytest.mark.parametrize("shape", [(0, 8), (0,), ()])
def test_memory_without_elements(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    assert imported(Lender(array, FLOAT, 32)).shape == shape
    if shape == (0, 8):
        doubled(f32)(X=Lender(array, FLOAT, 32))


def test_memory_of_the_host_that_a_gpu_shares() -> None:
    array = np.ones((2, 2), np.float32)
    assert np.array_equal(imported(Lender(array, FLOAT, 32, device=CUDA_HOST)), array)


def error_of(program: Program, value: object) -> PtoError:
    with pytest.raises(PtoError) as caught:
        program(X=value)
    return caught.value


class Refusing:
    """What a tensor of torch that requires gradients does."""

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class NoCapsule(Refusing):
    def __dlpack__(self, **_: object) -> object:
        return "a capsule"


class NoDevice(Refusing):
    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("no such device")


def test_what_cannot_be_taken_is_refused() -> None:
    program = doubled(f32)
    array = np.ones((4, 8), np.float32)
    refusals: list[tuple[object, type[PtoError], str]] = [
        (Lender(array, FLOAT, 32, device=CUDA), UnusableArray, "another device"),
        (Refusing(), UnusableArray, "require gradient"),
        (NoCapsule(), UnusableArray, "no DLPack capsule"),
        (Lender(array, FLOAT, 32, major=2), UnusableArray, "version 2"),
        (Lender(array, FLOAT, 32, major=1, flags=1), ReadOnlyArray, "read-only"),
        (Lender(array, FLOAT, 32, lanes=4), WrongDType, "lanes"),
        (Lender(array, FLOAT, 8), WrongDType, "8 bits"),
        (Lender(array, COMPLEX, 64), WrongDType, "type code 5"),
        (Lender(array, BFLOAT, 16), WrongDType, "found bf16"),
        (Lender(array.astype(np.float64), FLOAT, 64), WrongDType, "found f64"),
        (Lender(array[None], FLOAT, 32), WrongRank, "found 3"),
        (Lender(np.ones((8, 8), np.float32).T, FLOAT, 32), UnusableArray, "innermost stride"),
        (np.float32(3), WrongValue, "float32"),
        ([[1.0]], WrongValue, "list"),
        (np.ndarray, WrongValue, "found type"),
        (NoDevice(), UnusableArray, "no such device"),
    ]
    for value, kind, text in refusals:
        error = error_of(program, value)
        assert isinstance(error, kind) and text in str(error), (value, error)
    assert (array == 1).all()


def test_operators_refuse_what_programs_refuse() -> None:
    """Every public function that takes arrays takes the same ones."""
    rows, weight = np.ones((4, 8), np.float32), np.ones((8, 8), np.float32)
    takers: list[Callable[[Any], object]] = [
        lambda x: doubled(f32)(X=x),
        F.softmax,
        lambda x: F.gelu(rows, out=x),
        lambda x: F.linear(rows, x),
        PackedMatrix,
        lambda x: matmul(rows, PackedMatrix(weight), x),
        lambda x: BatchDecode(2, 1, 8, page_size=None).plan(x),
        MemLayout.panels(8).pack,
        Ragged.lengths,
        Ragged.indptr,
        lambda x: Sparse.csr([0, 1], x),
        lambda x: AttentionPlanner().generate(x, num_heads=1, chunk_size=256),
    ]
    masked = [np.ma.masked_array(np.ones(shape, kind)) for shape in (8, (8, 8)) for kind in ("f4", "i4")]
    for taker in takers:
        for value in (*masked, NoDevice(), np.ndarray, "text", object()):
            with pytest.raises(PtoError) as caught:
                taker(value)
            assert not isinstance(value, np.ma.MaskedArray) or "mask" in str(caught.value), (taker, value)


def test_read_only_memory_can_be_read() -> None:
    array = np.ones((4, 8), np.float32)
    array.flags.writeable = False
    found = imported(Other(array))
    assert not found.flags.writeable and np.array_equal(found, array)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype, name in ((f32, "float32"), (f16, "float16"), (bf16, "bfloat16"), (i64, "int64")):
        tensor = torch.ones((10, 8), dtype=getattr(torch, name))
        doubled(dtype)(X=tensor)
        assert (tensor == 2).all()
    error = error_of(doubled(f32), torch.ones((10, 8), requires_grad=True))
    assert isinstance(error, UnusableArray) and "grad" in str(error)
    refused: list[tuple[Any, str]] = [
        (torch.ones((10, 8), dtype=torch.complex64).conj().imag, "negative"),
        (torch.ones((10, 8)).expand(2, 10, 8)[:, 0], "the program writes it"),
        (torch.ones((10, 8)).to_sparse(), "refuses"),
        (torch.ones((10, 8), device="meta"), "refuses"),
        (torch.ones((8, 10)).T, "innermost stride"),
    ]
    for tensor, text in refused:
        error = error_of(doubled(f32), tensor)
        assert isinstance(error, UnusableArray) and text in str(error), text
