"""Tensors that tasks make are read only where those tasks have run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pto_wsp.errors import UnknownName
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.kernel import OUT, KernelFunction
from pto_wsp.ir.scalar import Element, walk
from pto_wsp.location import Location


def require_made(workload: w.WorkloadFunction, kernels: Mapping[str, KernelFunction]) -> None:
    """Refuse reads of local tensors that a run could come to without having made them.

    Raises:
        UnknownName: one outside of the loop or branch that makes the tensor.
    """
    made_in_run = {tensor.name for tensor in workload.tensors if tensor.is_local}
    if made_in_run:
        _check(workload.body, kernels, made_in_run)


def _check(body: Sequence[w.Node], kernels: Mapping[str, KernelFunction], missing: set[str]) -> None:
    """Check a block at whose start the tensors `missing` may not have been made."""
    missing = set(missing)
    for node in body:
        for name, loc in _reads(node, kernels):
            if name in missing:
                raise UnknownName(
                    name=name.partition(".")[0],
                    where="what comes before its `group_by`, or after the loop or branch around that",
                    advice="use it in the loop or branch that makes it",
                    loc=loc or node.loc,
                )
        match node:
            case w.Loop(body=inner):
                _check(inner, kernels, missing)
            case w.Cond(then=then, other=other):
                _check(then, kernels, missing)
                _check(other, kernels, missing)
            case w.Task():
                missing -= {region.tensor for role, region in _regions(node, kernels) if role == OUT}
            case _:
                pass


def _reads(node: w.Node, kernels: Mapping[str, KernelFunction]) -> Iterator[tuple[str, Location | None]]:
    """Yield the tensors that a node itself reads, with the places."""
    for expr in w.node_expressions(node):
        for part in walk(expr):
            if isinstance(part, Element):
                yield part.name, part.loc
    if isinstance(node, w.Task):
        for role, region in _regions(node, kernels):
            if role != OUT:
                yield region.tensor, region.loc
            for dim in region.dims:
                if isinstance(dim, Rows):
                    yield dim.indices, region.loc


def _regions(task: w.Task, kernels: Mapping[str, KernelFunction]) -> Iterator[tuple[str, Region]]:
    for param, arg in zip(kernels[task.kernel].params, task.args, strict=True):
        if isinstance(arg, Region):
            yield param.role, arg
