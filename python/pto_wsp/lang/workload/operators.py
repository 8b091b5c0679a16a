"""Schedule operators as methods of a workload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.schedule.arguments import checked_count
from pto_wsp.location import Location, caller_location
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.support.record import record

MAX_LENGTH = 1 << 31


@record
class ScheduleOperator:
    """An operator that was called on a workload.

    Attributes:
        name: of the method.
        args: names of loops and kernels, and numbers.
        loc: where it was called.
    """

    name: str
    args: tuple[str | int, ...]
    loc: Location | None

    def apply(self, module: Module) -> Module:
        """Return what it makes of a module, verified.

        Raises:
            CannotRestructure: it would change results, or finds no place.
            MissingPackage: it needs a proof, and islpy is not installed.
        """
        from pto_wsp.restructure.operators import restructured  # here: few programs need it

        return verify(restructured(inline_calls(module), self.name, self.args, self.loc))


class Restructurable(ABC):
    """Something whose loops and tasks can become others that have the same results."""

    @abstractmethod
    def _restructured(self, operator: ScheduleOperator) -> Self:
        """Return a copy to which one more operator is applied."""

    def tile(self, loop: str, length: int) -> Self:
        """Return a copy in which a loop is two: over tiles of `length` iterations, and inside a tile.

        `tile("i", 4)` makes the loops `i_tile` and `i_in` of the loop `i`. Tasks keep their order.

        Args:
            loop: the variable of a loop that is not one over tiles.
            length: iterations of a tile, from 1. The last tile may be shorter.

        Raises:
            WrongValue: `length` is not such a number. What the operator finds is raised by `compile`.
        """
        checked_count("length", length, 1, MAX_LENGTH)
        return self._restructured(ScheduleOperator("tile", (loop, length), caller_location()))

    def reorder(self, outer: str, inner: str) -> Self:
        """Return a copy in which two nested loops are exchanged.

        `compile` proves for all sizes that no two conflicting tasks change their order.

        Args:
            outer: the variable of a loop that contains only the inner loop.
            inner: the variable of the inner loop. Its extent does not depend on `outer`.
        """
        return self._restructured(ScheduleOperator("reorder", (outer, inner), caller_location()))

    def fuse_tasks(self, first: Kernel | str, second: Kernel | str) -> Self:
        """Return a copy in which each task of `first` and the next task of `second` become one task.

        The second kernel then finds its operands in the cache of the same worker, and there are fewer
        tasks. Adjacent loops around the tasks become one loop. `compile` proves that no two conflicting
        tasks change their order.

        Args:
            first: a kernel that the workload calls once in its text.
            second: another one, whose task or loop follows directly.
        """
        names = tuple(_kernel_name(each) for each in (first, second))
        return self._restructured(ScheduleOperator("fuse_tasks", names, caller_location()))

    def split_tasks(self, kernel: Kernel | str, rows: int) -> Self:
        """Return a copy in which each task of a kernel is split into tasks of `rows` rows.

        `compile` proves that rows of the results depend on the same rows of the operands that it splits.

        Args:
            kernel: a kernel that the workload calls once in its text.
            rows: rows of the tiles of the new tasks; a divisor of the rows of the kernel's tiles.

        Raises:
            WrongValue: `rows` is not a positive number.
        """
        checked_count("rows", rows, 1, MAX_LENGTH)
        return self._restructured(
            ScheduleOperator("split_tasks", (_kernel_name(kernel), rows), caller_location())
        )


def _kernel_name(kernel: Any) -> str:
    return kernel if isinstance(kernel, str) else str(kernel.name)
