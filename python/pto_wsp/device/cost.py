"""The cost of one call of a kernel, and the cost that a user states."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence

from pto_wsp.device.kernel_facts import core_kinds
from pto_wsp.device.model import Device, is_cycles
from pto_wsp.errors import NoCost
from pto_wsp.ir import kernel as k
from pto_wsp.ir.native_cycles import NativeCycles, native_cycles
from pto_wsp.ir.scalar import Value
from pto_wsp.support.record import record


@record
class KernelCost:
    """What one call of a kernel costs.

    Attributes:
        units: kinds of cores that it takes, by their names; two for a kernel with products and vector work.
        cycles: time on a core that has its whole transfer rates.
        busy: cycles that each pipe works.
        loaded: bytes that it loads from each argument, in order of its views.
        stored: bytes that it stores to each.
        spilled: bytes that it moves between its own memories by way of global memory.
        operations: floating-point operations; a product counts two per term.
    """

    units: tuple[str, ...]
    cycles: float
    busy: Mapping[str, float]
    loaded: tuple[int, ...]
    stored: tuple[int, ...]
    spilled: int
    operations: int

    @property
    def gm_bytes(self) -> int:
        """Bytes that cross to or from global memory."""
        return sum(self.loaded) + sum(self.stored) + self.spilled


@record
class StatedView:
    """A view as the function of `@NAME.cost` sees it.

    Attributes:
        shape: valid extents.
    """

    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The extent before the last one; 1 if there is none."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def cols(self) -> int:
        """The last extent."""
        return self.shape[-1]


def stated_cost(
    kernel: k.KernelFunction, device: Device, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
) -> KernelCost | None:
    """Return the cost that a user states in Python or in C++, or None.

    Each view is loaded and stored once, as its role says.
    """
    if kernel.cost is not None:
        cycles = _python_cycles(kernel, device, shapes, scalars)
    elif (native := native_cycles(kernel)) is not None:
        cycles = _native_cycles(native, kernel, device, shapes, scalars)
    else:
        return None
    moved = [view_bytes(p, shape) for p, shape in zip(kernel.views, shapes, strict=True)]
    loaded = [n if p.role != k.OUT else 0 for p, n in zip(kernel.views, moved, strict=True)]
    stored = [n if p.role != k.IN else 0 for p, n in zip(kernel.views, moved, strict=True)]
    units = tuple(kind.name for kind in core_kinds(kernel, device))
    return KernelCost(units, cycles, {}, tuple(loaded), tuple(stored), 0, 0)


def _python_cycles(
    kernel: k.KernelFunction, device: Device, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
) -> float:
    """Return the cost that the function of `@NAME.cost` returns."""
    assert kernel.cost is not None
    values: dict[str, object] = dict(zip((p.name for p in kernel.scalar_params), scalars, strict=True))
    values |= {p.name: StatedView(shape) for p, shape in zip(kernel.views, shapes, strict=True)}
    asked = inspect.signature(kernel.cost).parameters
    missing = [name for name in asked if name not in values]
    cycles = None if missing else kernel.cost(**{name: values[name] for name in asked})
    if is_cycles(cycles):
        return float(cycles)
    reason = f"its cost asks for `{missing[0]}`" if missing else f"its cost is {cycles!r}"
    advice = "return a number of cycles that follows from views and scalars"
    raise NoCost(kernel=kernel.name, device=device.name, reason=reason, advice=advice, loc=kernel.loc)


def _native_cycles(
    stated: NativeCycles,
    kernel: k.KernelFunction,
    device: Device,
    shapes: Sequence[tuple[int, ...]],
    scalars: Sequence[Value],
) -> float:
    """Return the value of PTO_CYCLES."""
    views = {p.name: shape for p, shape in zip(kernel.views, shapes, strict=True)}
    numbers = dict(zip((p.name for p in kernel.scalar_params), scalars, strict=True))
    try:
        cycles = stated.of(views, numbers)
    except ZeroDivisionError:
        cycles = None
    if is_cycles(cycles):
        return float(cycles)
    reason = f"`PTO_CYCLES({stated.text})` " + ("divides by zero" if cycles is None else f"is {cycles!r}")
    advice = "state cycles that are not negative"
    raise NoCost(kernel=kernel.name, device=device.name, reason=reason, advice=advice, loc=kernel.loc)


def view_bytes(param: k.Param, shape: tuple[int, ...]) -> int:
    """Return the bytes of the valid elements of a view."""
    dtype = param.type.dtype
    return 0 if dtype is None else math.prod(shape) * dtype.itemsize
