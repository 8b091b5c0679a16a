"""What users give as arrays: those of numpy, and those of other libraries, taken in place through DLPack.

The capsule is read here rather than by `numpy.from_dlpack`, which takes no bf16, and which makes arrays
read-only that their owners let others write.
Source: dlpack.h, versions 0 and 1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_wsp.errors import UnusableArray, WrongDType, WrongValue
from pto_wsp.location import Location, argument_location
from pto_wsp.runtime.gpu_arrays import ForeignMemory, interface_array, on_gpu
from pto_wsp.support.arrays import is_masked
from pto_wsp.types.dtype import DTYPES, DType

CPU_DEVICES = {1: "CPU", 3: "CUDA host memory", 11: "ROCm host memory"}
"""Kinds of devices whose memory the CPU works on."""

GPU_DEVICES = (2, 13)
"""Kinds of devices whose memory a GPU of NVIDIA works on: its own, and memory that it shares."""

LEGACY_STREAM = 1
"""What DLPack calls the default stream, which is 0 elsewhere."""

READ_ONLY = 1
"""Flag of a versioned capsule."""

_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def as_numpy(
    name: str,
    value: Any,
    loc: Location | None = None,
    dtype: DType | None = None,
    stream: int | None = None,
) -> np.ndarray:
    """Return what a user gives as an array: the same memory, whatever its strides and element type.

    Args:
        name: the parameter that it is for, for messages.
        value: an array of numpy, or an object with `__dlpack__`.
        loc: place of the parameter.
        dtype: its element type, for the hint of an error.
        stream: of a GPU, in which the array is used: it may then lie on the GPU, as a `GpuArray`.

    Raises:
        WrongValue: it is not an array.
        UnusableArray: it has a mask, does not lie in memory of the CPU, or its owner refuses to lend it.
        WrongDType: no tensor has its element type.
    """
    if type(value) is np.ndarray:
        return value
    if is_masked(value):
        reason = "it is a masked array, and tasks would not see its mask"
        raise UnusableArray(name=name, reason=reason, loc=loc)
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(type(value), "__dlpack__"):
        if stream is not None and hasattr(type(value), "__cuda_array_interface__"):
            return _by_interface(name, value, loc)
        expected = "a numpy array, or one with `__dlpack__`"
        of_type = "" if dtype is None else f", np.{dtype.to_numpy().name}"
        hint = f"make an array of it first: `np.asarray({name}{of_type})`"
        found, place = type(value).__name__, argument_location(name)
        raise WrongValue(name=name, expected=expected, found=found, loc=place, hint=hint)
    return _imported(name, value, loc, stream)


def _by_interface(name: str, value: Any, loc: Location | None) -> np.ndarray:
    """Return an array of the CUDA array interface, after the work that its owner has enqueued for it."""
    from pto_wsp.targets.cuda.driver import find_gpu, gpu_of_address  # where an array is on a GPU

    array, ready = interface_array(name, value, loc)
    if not array.size:
        return array
    number = gpu_of_address(array.ctypes.data)
    if ready is not None:
        with find_gpu(number).current() as driver:
            driver.call("cuStreamSynchronize", ready)
    return on_gpu(array, number)


def _imported(name: str, value: Any, loc: Location | None, stream: int | None) -> np.ndarray:
    """Return an object with `__dlpack__` as an array of the same memory."""
    device, number = _device(name, value, loc)
    is_on_gpu = device in GPU_DEVICES
    if device not in CPU_DEVICES and (not is_on_gpu or stream is None):
        reason = f"it lies on another device (DLPack device type {device})"
        raise UnusableArray(name=name, reason=reason, loc=loc, hint="copy it to the CPU")
    if getattr(value, "is_neg", bool)():  # torch lends the memory of such a view, and does not say so
        reason = "it represents the negative of its memory"
        raise UnusableArray(name=name, reason=reason, loc=loc, hint="pass `tensor.resolve_neg()`")
    capsule = _capsule(name, value, loc, {"stream": stream or LEGACY_STREAM} if is_on_gpu else {})
    tensor, is_read_only = _tensor(name, capsule, loc)
    dtype = _dtype(tensor.dtype)
    if dtype is None:
        code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
        raise WrongDType(
            name=name,
            expected="an element type of tensors",
            found=f"DLPack type code {code} of {bits} bits and {lanes} lanes",
            loc=loc,
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.rank))
    if 0 in shape or tensor.data is None:
        return np.empty(shape, dtype.to_numpy())
    stored = np.dtype(np.uint16) if dtype.name == "bf16" else dtype.to_numpy()
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.rank))
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": stored.str,
        "data": (tensor.data + tensor.byte_offset, is_read_only),
        "strides": strides,
    }
    # The capsule is not marked as used, so that its own destructor gives the memory back.
    array = np.asarray(ForeignMemory(capsule, interface)).view(dtype.to_numpy())
    return on_gpu(array, number) if is_on_gpu else array


def _device(name: str, value: Any, loc: Location | None) -> tuple[int, int]:
    """Ask an object for the kind of device that it lies on, and for the number of the device."""
    if not hasattr(value, "__dlpack_device__"):
        return 1, 0
    try:
        kind, number = value.__dlpack_device__()
        return int(kind), int(number)
    except Exception as error:  # whatever a library says of a device that DLPack does not know
        raise _refused(name, error, loc) from error


def _capsule(name: str, value: Any, loc: Location | None, options: Mapping[str, int]) -> object:
    """Ask an object for its capsule; owners older than DLPack 1 know no `max_version`."""
    try:
        try:
            return value.__dlpack__(max_version=(1, 0), **options)
        except TypeError:
            return value.__dlpack__(**options)
    except Exception as error:  # whatever a library says when it refuses, such as "requires gradient"
        raise _refused(name, error, loc) from error


def _refused(name: str, error: Exception, loc: Location | None) -> UnusableArray:
    return UnusableArray(name=name, reason=f"its owner refuses to lend it: {error}", loc=loc, hint="")


def _tensor(name: str, capsule: object, loc: Location | None) -> tuple[_Tensor, bool]:
    """Return what a capsule describes, and whether it is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major == 1:
            return versioned.tensor, bool(versioned.flags & READ_ONLY)
        problem = f"it comes as DLPack version {versioned.major}.{versioned.minor}"
    elif _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")), False
    else:
        problem = "its `__dlpack__` gives no DLPack capsule"
    raise UnusableArray(name=name, reason=problem, loc=loc, hint="")


def _dtype(found: _Type) -> DType | None:
    if found.lanes != 1:
        return None
    if found.code == _BFLOAT:
        return DTYPES["bf16"] if found.bits == 16 else None
    kind = _KINDS.get(found.code)
    return next(
        (t for t in DTYPES.values() if t.kind == kind and t.itemsize * 8 == found.bits and t.name != "bf16"),
        None,
    )
