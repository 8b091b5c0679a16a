"""Kernels that users write in C++ for a core of Ascend: their text as it is, inside of a function."""

from __future__ import annotations

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.ascend.split import CUBE, VECTOR
from pto_wsp.targets.base import Check, require_written_for
from pto_wsp.targets.c_style.native import arguments, parameters, require_text, write_constants, write_text
from pto_wsp.targets.c_style.spelling import INTEGERS, function_name

ELEMENTS: dict[str, str] = {**INTEGERS, **STORAGE, "b1": "uint8_t"}
"""C++ types of the elements of a `TensorView`."""

PARAMETERS = (
    "[[maybe_unused]] const View* views, [[maybe_unused]] const Scalar* scalars, const TaskContext* context"
)
"""Of a function of a core."""


@record
class NativeCode:
    """A function around the text of a user.

    Attributes:
        out: the function.
        includes: the lines before it.
        checks: the run-time checks; number n is at index n - 1.
    """

    out: TextWriter
    includes: tuple[str, ...]
    checks: list[Check]


def write_native(kernel: KernelFunction, generation: Generation) -> NativeCode:
    """Return the function of a kernel in C++.

    Raises:
        UnsupportedByTarget: the C++ is for other targets, is a whole file or includes files of its own; the
            kind of core is open; or cores do not have the type of a parameter.
    """
    native = kernel.native
    assert native is not None
    _require_written(kernel, generation)
    out = TextWriter()
    name = function_name(kernel)
    declared = [*parameters(kernel, ELEMENTS), "const TaskContext& context"]
    out.line(f"AICORE inline void body_{name}({', '.join(declared)}) {{")
    write_constants(native, out, ELEMENTS)
    write_text(native, out)
    out.line("}")
    out.line(f"AICORE inline int32_t {name}({PARAMETERS}) {{")
    checks: list[Check] = []
    with out.indented():
        for number, param in enumerate(kernel.views):
            checks.append(Check(param.loc or kernel.loc, _listed(param)))
            out.line(f"if (views[{number}].rows) return {len(checks)};")
        passed = [*dict(arguments(kernel, ELEMENTS)).values(), "*context"]
        out.line(f"body_{name}({', '.join(passed)});")
        out.line("pipe_barrier(PIPE_ALL);")
        out.line("return 0;")
    out.line("}")
    return NativeCode(out, tuple(f"#include {header}" for header in native.includes), checks)


def _listed(param: Param) -> CheckText:
    return CheckText(f"rows of `{param.name}` are listed, and C++ reads tensors without a list")


def _require_written(kernel: KernelFunction, generation: Generation) -> None:
    """Refuse C++ that is not for one kind of core, and types that cores do not have."""
    target = generation.name
    require_written_for(target, kernel)
    require_text(kernel, target)
    if kernel.unit not in (CUBE, VECTOR):
        what = f"the kernel `{kernel.name}` in C++"
        reason = f'say which cores run it: `core="{VECTOR}"` or `core="{CUBE}"`'
        raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=kernel.loc)
    for param in kernel.views:
        if param.type.dtype is None or param.type.dtype.name not in ELEMENTS:
            what = f"the parameter `{param.name}` of type {param.type.dtype}"
            reason = f"cores have {', '.join(ELEMENTS)}"
            raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=param.loc)
