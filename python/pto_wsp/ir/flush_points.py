"""What of a workload is known only while it runs.

An expression is *late* if it reads an element of a tensor that a task of the run writes, or a late variable.
A variable is late if some Set of it has a late value or is under late control. Control is late inside a
loop or condition whose extent or condition is late, or that is under late control itself.

What is not late is checked before the first task runs; what is late is checked at its place in program order,
before the task that it belongs to runs. The engine has the same rule (docs/bytecode.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.scalar import Element, Expr, name_of, walk
from pto_wsp.support.record import record


@record
class Late:
    """What is late in one workload function.

    Attributes:
        written: names of the tensors that some task writes.
        variables: the late variables.
    """

    written: AbstractSet[str]
    variables: AbstractSet[w.Variable]

    def has(self, *exprs: Expr) -> bool:
        """Return whether one of `exprs` is late."""
        return any(self._decides(node) for expr in exprs for node in walk(expr))

    def _decides(self, node: Expr) -> bool:
        match node:
            case Element(name=name):
                return name in self.written
            case _:
                return name_of(node) in self.variables

    def region(self, region: Region) -> bool:
        """Return whether an index or range of `region` is late. The indices of its rows are not asked."""
        return self.has(*region.expressions)

    def indices(self, region: Region) -> bool:
        """Return whether a task writes the indices of the row set of `region`, if it has one."""
        return any(isinstance(dim, Rows) and dim.indices in self.written for dim in region.dims)


def reads_element(expr: Expr, tensors: AbstractSet[str]) -> bool:
    """Return whether `expr` reads an element of one of `tensors`."""
    return any(isinstance(node, Element) and node.name in tensors for node in walk(expr))


def find_late(workload: w.WorkloadFunction, written: AbstractSet[str]) -> Late:
    """Return what is late in `workload`.

    Args:
        workload: a verified workload function.
        written: names of the tensors that some task writes.
    """
    late = Late(written, frozenset())
    while True:
        found = frozenset(_late_sets(workload.body, late, False))
        if found == late.variables:
            return late
        late = Late(written, found)


def _late_sets(body: Sequence[w.Node], late: Late, is_late: bool) -> Iterator[w.Variable]:
    """Yield the variables that a late Set of `body` assigns, where control is late or not."""
    for node in body:
        decides = is_late or late.has(*w.node_expressions(node))
        if isinstance(node, w.Set) and decides:
            yield node.name
        for block in w.blocks(node):
            yield from _late_sets(block, late, decides)
