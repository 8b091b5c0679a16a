"""What C++ kernels refuse."""

from __future__ import annotations

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import Instr, KernelFunction, Param, walk_statements
from pto_wsp.location import Location
from pto_wsp.targets.base import require_written_for
from pto_wsp.targets.c_style.spelling import INTEGERS
from pto_wsp.targets.cpu.emit import MAX_RANK
from pto_wsp.targets.cpu.templates import STORAGE, TEMPLATES, Unsupported
from pto_wsp.types.dtype import f32
from pto_wsp.types.tile import ScalarType, ViewType


def check_kernel(kernel: KernelFunction, target: str) -> None:
    """Raise UnsupportedByTarget for the first thing in a kernel that is refused, in the name of `target`."""
    require_written_for(target, kernel)
    for param in kernel.params:
        _check_param(param, kernel.native is not None, target)
    for name, tile in kernel.tiles:
        if tile.dtype.name not in STORAGE:
            raise _refused(target, f"the tile `{name}` of type {tile.dtype}", _known_types(), kernel.loc)
    for stmt in walk_statements(kernel.body or ()):
        if isinstance(stmt, Instr):
            template = TEMPLATES[stmt.op]
            if isinstance(template, Unsupported):
                raise _refused(target, f"`{stmt.op}`", template.reason, stmt.loc)


def _check_param(param: Param, is_native: bool, target: str) -> None:
    dtype = param.type.dtype
    if isinstance(param.type, ScalarType):
        if param.type.dtype.is_float and dtype is not f32:
            raise _refused(target, f"scalars of type {dtype}", "scalar arithmetic is done in f32", param.loc)
        return
    if dtype is None or (isinstance(param.type, ViewType) and param.type.dims is None):
        raise _refused(target, f"the parameter `{param.name}`", "its type is not decided", param.loc)
    is_read_by_element = is_native or (isinstance(param.type, ViewType) and dtype.name in INTEGERS)
    if dtype.name not in STORAGE and not is_read_by_element:
        raise _refused(target, f"tensors of type {dtype}", _known_types(), param.loc)
    if isinstance(param.type, ViewType) and len(param.type.dims or ()) > MAX_RANK:
        raise _refused(target, f"views of more than {MAX_RANK} dimensions", "", param.loc)


def _known_types() -> str:
    return f"tiles hold {', '.join(STORAGE)}"


def _refused(target: str, what: str, reason: str, loc: Location | None) -> UnsupportedByTarget:
    return UnsupportedByTarget(target=target, what=what, reason=reason, loc=loc)
