"""The schedule operators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.restructure.loops import reorder, tile
from pto_wsp.restructure.places import Request
from pto_wsp.restructure.split import split_tasks
from pto_wsp.restructure.tasks import fuse_tasks

OPERATORS: Mapping[str, Callable[..., Module]] = {
    f.__name__: f for f in (tile, reorder, fuse_tasks, split_tasks)
}


def restructured(module: Module, name: str, args: Sequence[str | int], loc: Location | None) -> Module:
    """Return what an operator makes of a module without calls of workloads.

    Args:
        module: the module.
        name: of the operator.
        args: names of loops and kernels, and numbers.
        loc: where it was called.

    Raises:
        CannotRestructure: it would change results, or finds no place.
    """
    shown = (f'"{arg}"' if isinstance(arg, str) else str(arg) for arg in args)
    return OPERATORS[name](module, *args, Request(f"{name}({', '.join(shown)})", loc))
