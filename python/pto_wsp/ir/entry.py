"""A kernel as the entry of a program."""

from __future__ import annotations

from pto_wsp.errors import InvalidIR
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.rules import view_rank_and_dtype
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.ir.workload import (
    ScalarParam,
    SizeParam,
    Task,
    TensorParam,
    WorkloadFunction,
    WorkloadParam,
)
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.types.tile import ScalarType, TensorType, TileType


def with_entry_workload(module: Module) -> Module:
    """Return a module whose entry is a workload: where it is a kernel, one task of it on whole tensors.

    The tensors have the names of the kernel's parameters; a dimension that is known only at run time is the
    size `<parameter>_rows`, `<parameter>_cols` or, of more than two, `<parameter>_<number>`.

    Raises:
        InvalidIR: the module has no entry.
    """
    if not module.entry:
        names = ", ".join(f"`{f.name}`" for f in (*module.kernels, *module.workloads)) or "none"
        raise InvalidIR(message=f"the module has no entry, which one of its functions is: {names}")
    kernel = next((k for k in module.kernels if k.name == module.entry), None)
    if kernel is None:
        return module
    fresh = Fresh(f.name for f in (*module.kernels, *module.workloads))
    name = fresh.name(f"{kernel.name}_once")
    workload = _one_task(name, kernel)
    return replace(module, workloads=(*module.workloads, workload), entry=name)


def _one_task(name: str, kernel: KernelFunction) -> WorkloadFunction:
    params: list[WorkloadParam] = []
    args: list[Region | Expr] = []
    fresh = Fresh(param.name for param in kernel.params)
    for param in kernel.params:
        if isinstance(param.type, ScalarType):
            params.append(ScalarParam(param.name, param.type, param.loc))
            args.append(Var(param.name, param.type.dtype))
        else:
            dims = _dims(param, fresh)
            _, dtype = view_rank_and_dtype(param)
            params += [SizeParam(dim, loc=param.loc) for dim in dims if isinstance(dim, str)]
            params.append(TensorParam(param.name, TensorType(dtype, dims), param.loc))
            args.append(Region(param.name, (Full(),) * len(dims), param.loc))
    task = Task(kernel.name, tuple(args), loc=kernel.loc)
    return WorkloadFunction(name, tuple(params), (task,), kernel.loc)


def _dims(param: Param, fresh: Fresh) -> tuple[int | str, ...]:
    """Return the dimensions of the tensor that a view covers: a tile takes smaller ones too."""
    assert not isinstance(param.type, ScalarType)
    known = (None, None) if isinstance(param.type, TileType) else param.type.dims or ()
    names = ("rows", "cols") if len(known) == 2 else tuple(map(str, range(len(known))))
    return tuple(
        fresh.name(f"{param.name}_{name}") if size is None else size
        for size, name in zip(known, names, strict=True)
    )
