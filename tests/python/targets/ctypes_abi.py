"""include/pto/wsp/abi.hpp in ctypes: loads a kernel library and calls kernels on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pto_wsp.ir.kernel import OUT, KernelFunction
from pto_wsp.targets.base import KernelArtifact
from pto_wsp.types.tile import ScalarType
from tests.python.targets import foreign

RANK = 4


class View(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * RANK),
        ("stride", ctypes.c_int64 * RANK),
        ("rows", ctypes.c_void_p),
        ("streams", ctypes.c_bool),
    )


class Scalar(ctypes.Union):
    _fields_ = (("i64", ctypes.c_int64), ("f64", ctypes.c_double), ("f32", ctypes.c_float))


class TaskContext(ctypes.Structure):
    _fields_ = (
        ("scratch", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("task", ctypes.c_uint64),
        ("block_idx", ctypes.c_uint32),
        ("block_num", ctypes.c_uint32),
        ("monitor", ctypes.c_void_p),
    )


class Monitor(ctypes.Structure):
    """The monitor of a kernel that is never stopped; it cannot print."""

    _fields_ = (
        ("ticks", ctypes.c_void_p),
        ("seen_ticks", ctypes.c_uint64),
        ("is_stopped", ctypes.c_void_p),
        ("print", ctypes.c_void_p),
        ("values", ctypes.c_int64 * 24),
    )


class ParamInfo(ctypes.Structure):
    _fields_ = (
        ("role", ctypes.c_uint8),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("min_shape", ctypes.c_int64 * RANK),
        ("max_shape", ctypes.c_int64 * RANK),
    )


KernelFn = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(View), ctypes.POINTER(Scalar), ctypes.POINTER(TaskContext)
)


class KernelInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("fn", KernelFn),
        ("params", ctypes.POINTER(ParamInfo)),
        ("num_views", ctypes.c_uint16),
        ("num_scalars", ctypes.c_uint16),
        ("scratch_bytes", ctypes.c_uint32),
        ("block_dim", ctypes.c_uint32),
        ("unit", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 3),
    )


class KernelLibrary(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("num_kernels", ctypes.c_uint32),
        ("table_hash", ctypes.c_uint64),
        ("kernels", ctypes.POINTER(KernelInfo)),
    )


class Library:
    """A loaded kernel library."""

    def __init__(self, path: Path) -> None:
        self._handle = ctypes.CDLL(str(path))
        entry = self._handle.pto_wsp_kernel_library
        entry.restype = ctypes.POINTER(KernelLibrary)
        self.table = entry().contents
        self.kernels = {
            self.table.kernels[i].name.decode(): self.table.kernels[i] for i in range(self.table.num_kernels)
        }

    def call(
        self,
        kernel: KernelFunction,
        args: Sequence[object],
        rows: dict[str, np.ndarray] | None = None,
        scratch_fill: int = 0xFF,
    ) -> int:
        """Call a kernel with one array or number per parameter; scratch starts as `scratch_fill` bytes.

        Outputs are stored past the caches where they are aligned: no result may depend on that.
        """
        info = self.kernels[kernel.name]
        views = (View * max(1, info.num_views))()
        scalars = (Scalar * max(1, info.num_scalars))()
        num_views = num_scalars = 0
        for param, arg in zip(kernel.params, args, strict=True):
            if isinstance(param.type, ScalarType):
                field = "f32" if param.type.dtype.is_float else "i64"
                setattr(scalars[num_scalars], field, arg)
                num_scalars += 1
            else:
                assert isinstance(arg, np.ndarray)
                views[num_views] = view_of(arg, (rows or {}).get(param.name))
                views[num_views].streams = param.role == OUT
                num_views += 1
        memory = np.full(info.scratch_bytes + 64 + 64, scratch_fill, np.uint8)
        start = -(-memory.ctypes.data // 64) * 64
        guard = memory[start - memory.ctypes.data + info.scratch_bytes :]
        guard[:] = 0xA5
        ticks = ctypes.c_uint64(0)
        monitor = Monitor(ctypes.addressof(ticks), 0)
        context = TaskContext(start, None, 0, 0, 0, 1, ctypes.addressof(monitor))
        status = info.fn(views, scalars, ctypes.byref(context))
        assert (guard == 0xA5).all(), "scratch was overrun"
        return status


def view_of(array: np.ndarray, rows: np.ndarray | None = None) -> View:
    """Return the view of an array; `rows` selects rows of its first dimension."""
    view = View(array.ctypes.data, (1,) * RANK, (0,) * RANK, None)
    for dim in range(array.ndim):
        view.shape[dim] = array.shape[dim]
        view.stride[dim] = array.strides[dim] // array.itemsize
    if rows is not None:
        view.shape[0] = len(rows)
        view.rows = rows.ctypes.data
    return view


def load(artifact: KernelArtifact) -> Library | foreign.ForeignLibrary:
    """Load what a target built."""
    return (
        foreign.ForeignLibrary(artifact.path) if foreign.is_foreign(artifact.path) else Library(artifact.path)
    )
