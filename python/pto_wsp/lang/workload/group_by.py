"""`group_by`: a sparse axis that a task of the run makes."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from pto_wsp.errors import BadOperand, NotYetSupported
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index
from pto_wsp.ir.scalar import Const, Element, Expr, Var, add, mul, walk
from pto_wsp.lang.annotations import In, Out
from pto_wsp.lang.kernel.kernel import Kernel, kernel
from pto_wsp.lang.operands import Number
from pto_wsp.lang.source import assigned_name
from pto_wsp.lang.workload.sparse import Held, Sparse, SparseAxis
from pto_wsp.lang.workload.tasks import TaskArguments
from pto_wsp.lang.workload.tensor import Tensor, View, dim_expr
from pto_wsp.lang.workload.trace import WorkloadTrace, current_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import i32, i64
from pto_wsp.types.tile import DYN, TensorType

GROUP_BY_SOURCE = "pto::wsp::tile::group_by(keys, offsets, indices);"
"""The text of the kernel, by which targets that do not run C++ know it."""

MAX_RANK = 4
"""Dimensions that a view of a kernel can have."""


def _reference(keys: np.ndarray, offsets: np.ndarray, indices: np.ndarray) -> None:
    groups = len(offsets) - 1
    outside = np.flatnonzero((keys < 0) | (keys >= groups))
    if len(outside):
        position = int(outside[0])
        raise ValueError(f"element {position} is {keys.ravel()[position]}, outside [0, {groups})")
    offsets[0] = 0
    offsets[1:] = np.cumsum(np.bincount(keys.ravel().astype(np.int64), minlength=groups))
    indices[:, 0] = np.argsort(keys, axis=None, kind="stable")


@cache
def group_by_kernel() -> Kernel:
    """Return the kernel of `group_by`, which is read when it is first used."""

    @kernel(
        cpp_src=GROUP_BY_SOURCE,
        cpp_includes=["<pto/wsp/tile/group.hpp>"],
        reference=_reference,
    )
    def group_by(
        keys: In[Tensor], offsets: Out[Tensor[i64, DYN]], indices: Out[Tensor[i32, DYN, 1]]
    ) -> None: ...

    # Two passes over the keys and one over the groups, in scalar instructions.
    group_by.cost(lambda keys, offsets: 16 * prod(keys.shape) + 4 * prod(offsets.shape))
    return group_by


def group_by(keys: Tensor, num_groups: Number | str | Dense | DenseDyn) -> Sparse:
    """Make a sparse axis whose row g has the positions of the elements of `keys` that are g.

    A task of the run sorts the positions; a position counts over all dimensions of `keys`, the last one
    fastest, and those of one row ascend. Control that reads the axis waits for that task. A row set of it
    indexes as many leading dimensions of a tensor as `keys` has.

    Args:
        keys: integers in [0, num_groups): a tensor, or a view of one by integers. Another value fails the
            run.
        num_groups: number of rows: a number, the name of a size, or a scalar of sizes.

    Raises:
        BadOperand: a tensor without integers, a part of one, or a number that only tasks know.

    Cost: O(elements + num_groups), on one worker.
    """
    trace, loc = current_trace("`group_by`"), caller_location()
    dims = _dims_of(keys, loc)
    groups = trace.extent_of(num_groups, loc)
    if not _is_known_before(trace, groups):
        raise _bad("a number of groups that sizes decide", "one that only the run knows", loc)
    name = trace.unique((assigned_name(loc) if loc is not None else None) or "groups")
    axis = _Groups(w.SparseParam(name, name + ".groups", loc), dims, groups)
    trace.axes.append(axis)
    TaskArguments((), (keys, axis.offsets, axis.indices), {}, loc).record(group_by_kernel())
    return axis  # pyright: ignore[reportReturnType]  # what workloads get for `Sparse`


class _Groups(SparseAxis):
    """A sparse axis made in the run: its tensors are the program's, its sizes follow from others."""

    def __init__(self, param: w.SparseParam, dims: tuple[int | str, ...], groups: Expr) -> None:
        super().__init__(param, dims[1:])
        self.dims = dims
        self.groups = groups
        self.offsets = Held(param.offsets, i64, (param.count,))
        self.tensors = (self.indices, self.offsets)

    @property
    def num_rows(self) -> Expr:
        """Number of rows, as `group_by` was given it."""
        return self.groups

    def hidden(self) -> tuple[w.WorkloadParam, ...]:
        """Return the parameters that hold its rows and indices."""
        param, loc = self.param, self.param.loc
        assert isinstance(param, w.SparseParam)
        entries: Expr = Const(1)
        for dim in self.dims:
            entries = mul(entries, dim_expr(dim))
        values = {param.outer: self.groups, param.count: add(self.groups, Const(1)), param.entries: entries}
        sizes = (w.SizeParam(name, loc=loc, value=value) for name, value in values.items())
        offsets = TensorType(i64, (param.count,))
        indices = TensorType(i32, (param.entries, 1))
        return (
            *sizes,
            w.TensorParam(param.offsets, offsets, loc, is_local=True, axis=param.name),
            w.TensorParam(param.indices, indices, loc, is_local=True, is_distinct=True),
        )


def _dims_of(keys: object, loc: Location | None) -> tuple[int | str, ...]:
    """Return the sizes of the tensor or view that is grouped."""
    base = keys.base if isinstance(keys, View) else keys
    if not isinstance(base, Tensor) or isinstance(base, View):
        raise _bad("a tensor whose element type is annotated", type(base).__name__, loc)
    if not base.dtype.is_integer:
        raise _bad("a tensor of integers", f"one of {base.dtype}", loc)
    entries = keys.entries if isinstance(keys, View) else ()
    if not all(isinstance(entry, (Full, Index)) for entry in entries):
        raise _bad("a tensor, or a view of one by integers", "a part of one", loc)
    whole = (*entries, *[Full()] * (len(base.dims) - len(entries)))
    dims = tuple(dim for dim, entry in zip(base.dims, whole, strict=True) if isinstance(entry, Full))
    if not dims:
        raise _bad("a tensor or view with dimensions", "one element", loc)
    if len(dims) > MAX_RANK:
        feature = f"grouping a tensor with {len(dims)} dimensions"
        raise NotYetSupported(feature=feature, detail=f"at most {MAX_RANK}", advice="", loc=loc)
    return dims


def _is_known_before(trace: WorkloadTrace, expr: Expr) -> bool:
    """Whether sizes and scalars of the call decide an expression."""
    parts = [*walk(expr)]
    names = [part.name for part in parts if isinstance(part, Var)]
    is_given = all(name in trace.sizes or name in trace.params for name in names)
    return is_given and not any(isinstance(part, Element) for part in parts)


def _bad(expected: str, found: str, loc: Location | None) -> BadOperand:
    return BadOperand(op="group_by", expected=expected, found=found, loc=loc)
