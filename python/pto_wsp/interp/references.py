"""Hand-written kernels in numpy: the functions that users give as their meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

import numpy as np

from pto_wsp.errors import KernelFailed, NoReference, PtoError
from pto_wsp.ir.kernel import IN, KernelFunction
from pto_wsp.ir.scalar import Value
from pto_wsp.location import Location, of_user
from pto_wsp.types.dtype import f32

IS_INSIDE_RUN: ContextVar[bool] = ContextVar("is_inside_run", default=False)
"""Whether a function of the user runs as part of a run of the interpreter."""


@contextmanager
def inside_run() -> Iterator[None]:
    """Call functions of the user as part of a run."""
    token = IS_INSIDE_RUN.set(True)
    try:
        yield
    finally:
        IS_INSIDE_RUN.reset(token)


def run_reference(kernel: KernelFunction, args: Sequence[np.ndarray | Value]) -> None:
    """Run the reference of a hand-written kernel: once per task, whatever its block_dim.

    Args:
        kernel: the kernel.
        args: a view or scalar per parameter, in order; outputs are written in place, inputs are read-only.

    Raises:
        NoReference: there is none.
        KernelFailed: it raised an exception.
    """
    native = kernel.native
    assert native is not None
    if native.reference is None:
        raise NoReference(name=kernel.name, loc=kernel.loc)
    values: dict[str, object] = dict(native.constants)
    for param, arg in zip(kernel.params, args, strict=True):
        if isinstance(arg, np.ndarray):
            view = arg.view()
            view.flags.writeable = param.role != IN
            values[param.name] = view
        else:
            values[param.name] = float(np.float32(arg)) if param.type.dtype is f32 else arg
    try:
        with inside_run():
            native.reference(**values)
    except PtoError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        place = of_user(_raised_at(error.__traceback__) or kernel.loc)
        raise KernelFailed(kernel=kernel.name, reason=reason, detail="in its reference", loc=place) from error


def _raised_at(traceback: TracebackType | None) -> Location | None:
    """Return the line of the reference itself that failed: the frame below ours."""
    inner = traceback.tb_next if traceback is not None else None
    return Location(inner.tb_frame.f_code.co_filename, inner.tb_lineno) if inner is not None else None
