"""Tiers: kernels with upper bounds for a size, one of which a run-time size selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pto_wsp.errors import BadOperand, BadTiers
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Expr, Var, binary
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.operands import Number, expression
from pto_wsp.lang.workload.blocks import OpenCond, OpenNode, OpenTask
from pto_wsp.lang.workload.tasks import Handle, TaskArguments
from pto_wsp.lang.workload.trace import WorkloadTrace, current_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import i64

Variant = tuple[Kernel, int | None]
"""A kernel and the largest size that it takes, or None: any."""


class KernelTiers:
    """Kernels for different sizes; made by `tier`.

    In a workload `index.at(size)[coordinates](arguments)` makes a task of the first kernel whose bound is not
    below the size.
    """

    def __init__(self, name: str, variants: Sequence[Variant]) -> None:
        self.name = name
        self.variants = tuple(variants)

    def __repr__(self) -> str:
        return f"<tier {self.name}: {', '.join(f'{k.name} <= {b}' for k, b in self.variants)}>"

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds that there are, ascending."""
        return tuple(bound for _, bound in self.variants if bound is not None)

    def at(self, size: Number) -> TierAt:
        """Select by a size, which is evaluated once, when the walk reaches the task.

        Raises:
            BadOperand: no integer.
        """
        current_trace(f"tier `{self.name}`")
        loc = caller_location()
        expr = expression(size)
        if expr is None or expr.dtype is not i64:
            found = type(size).__name__ if expr is None else str(expr.dtype)
            raise BadOperand(op=f"{self.name}.at", expected="an integer", found=found, loc=loc)
        return TierAt(self, expr, ())

    def __getitem__(self, _: object) -> NoReturn:
        self._without_size()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refused: a size selects the kernel."""
        self._without_size()

    __iter__ = None

    def _without_size(self) -> NoReturn:
        expected = f"`{self.name}.at(size)[...](...)`, where the size selects a kernel"
        raise BadOperand(op=f"tier {self.name}", expected=expected, found="no size", loc=caller_location())


class TierAt:
    """A tier with the size that selects, and the coordinates of a task."""

    def __init__(self, tier: KernelTiers, size: Expr, keys: tuple[object, ...]) -> None:
        self._tier = tier
        self._size = size
        self._keys = keys

    def __getitem__(self, keys: object) -> TierAt:
        """Give the coordinates of a task, which reports and traces name it by."""
        return TierAt(self._tier, self._size, keys if isinstance(keys, tuple) else (keys,))

    __iter__ = None

    def __call__(self, *args: object, **kwargs: object) -> Handle:
        """Make the task, of the kernel that the size selects.

        The run ends with `NoTier` where the size is below 0 or above every bound.
        """
        trace = current_trace(f"tier `{self._tier.name}`")
        loc = caller_location()
        name = trace.unique(f"{self._tier.name}.size")
        call = _TierCall(trace, self._tier, Var(name), loc)
        call.record(self._size, TaskArguments(self._keys, args, kwargs, loc))
        return Handle(trace, call.nodes, call.tasks, loc)


@record
class _Leaf:
    """What happens up to a bound: a task, or the end of the run."""

    bound: int | None
    kernel: Kernel | None


class _TierCall:
    """One selection: a variable for the size, and a balanced tree of conditionals on it."""

    def __init__(self, trace: WorkloadTrace, tier: KernelTiers, size: Var, loc: Location | None) -> None:
        self.trace = trace
        self.tier = tier
        self.size = size
        self.loc = loc
        self.nodes: list[OpenNode] = []
        self.tasks: list[OpenTask] = []

    def record(self, size: Expr, arguments: TaskArguments) -> None:
        leaves = [_Leaf(-1, None)]
        leaves += [_Leaf(bound, kernel) for kernel, bound in self.tier.variants]
        if leaves[-1].bound is not None:
            leaves.append(_Leaf(None, None))
        first = len(self.trace.blocks.innermost.nodes)
        self.trace.blocks.add(w.Set(self.size.name, size, self.loc))
        self.tree(leaves, arguments)
        self.nodes = self.trace.blocks.innermost.nodes[first:]

    def tree(self, leaves: Sequence[_Leaf], arguments: TaskArguments) -> None:
        """Record a tree that decides between leaves with ascending bounds in O(log n) comparisons."""
        blocks = self.trace.blocks
        if len(leaves) == 1:
            kernel = leaves[0].kernel
            if kernel is None:
                blocks.add(w.Refuse(self.tier.name, self.tier.bounds, self.size, self.loc))
            else:
                self.tasks += arguments.record(kernel).tasks
            return
        half = len(leaves) // 2
        bound = leaves[half - 1].bound
        assert bound is not None
        cond = OpenCond(binary("le", self.size, Const(bound), self.loc), self.loc, [], [])
        blocks.add(cond)
        for part, body in ((leaves[:half], cond.then), (leaves[half:], cond.other)):
            block = blocks.enter(body, f"tier `{self.tier.name}`", self.loc)
            self.tree(part, arguments)
            blocks.leave(block)


def tier(name: str, *variants: Variant) -> KernelTiers:
    """Return a table of kernels from which a run-time size selects one: `index.at(n)[b](x=X[b])`.

    `index = tier("index", (index_2k, 2048), (index_8k, 8192), (index_64k, None))`. The kernels have the same
    parameters and may have different tile shapes. A size above all bounds fails the run.

    Args:
        name: identifier that errors show.
        variants: pairs of a kernel and the largest size that it accepts. Bounds ascend; the last may be None.

    Raises:
        BadTiers: there are no kernels, bounds do not ascend, or parameters have other names.
    """
    loc = caller_location()

    def bad(problem: str) -> BadTiers:
        return BadTiers(tier=name, problem=problem, loc=loc)

    if not isinstance(name, str) or not name.isidentifier():
        raise bad(f"its name is {name!r}, no identifier")
    if not variants:
        raise bad("it has no kernels")
    lowest = 0
    for number, variant in enumerate(variants):
        match variant:
            case (Kernel() as kernel, int() | None as bound) if not isinstance(bound, bool):
                pass
            case _:
                raise bad(f"found {variant!r}, expected a kernel and its largest size")
        if bound is None and number != len(variants) - 1:
            raise bad(f"`{kernel.name}` takes any size, and others come after it")
        if bound is not None and bound < lowest:
            raise bad(f"the bound of `{kernel.name}` is {bound}, expected {lowest} or more")
        lowest = lowest if bound is None else bound + 1
        first = variants[0][0]
        if [p.name for p in kernel.params] != [p.name for p in first.params]:
            raise bad(f"`{kernel.name}` has other parameters than `{first.name}`")
    return KernelTiers(name, variants)
