"""Kernels that users write in C++ for a core of Ascend: their text as it is, inside of a function."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import IN, KernelFunction, Native, Param
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.ascend.split import CUBE, VECTOR
from pto_wsp.targets.base import Check, require_written_for
from pto_wsp.targets.c_style.spelling import INTEGERS, function_name, scalar_type
from pto_wsp.targets.cpu.native import constant, write_text
from pto_wsp.types.tile import ScalarType, TileType, ViewType

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
    _require_text(kernel, native, generation)
    out = TextWriter()
    name = function_name(kernel)
    parameters = ", ".join(f"[[maybe_unused]] {_parameter(param, generation)}" for param in kernel.params)
    out.line(
        f"AICORE inline void body_{name}({parameters}{', ' * bool(parameters)}const TaskContext& context) {{"
    )
    for key, value in native.constants:
        out.line(f"[[maybe_unused]] {constant(key, value, ELEMENTS)}")
    write_text(native, out)
    out.line("}")
    out.line(f"AICORE inline int32_t {name}({PARAMETERS}) {{")
    checks: list[Check] = []
    with out.indented():
        for number, param in enumerate(kernel.views):
            checks.append(Check(param.loc or kernel.loc, _listed(param)))
            out.line(f"if (views[{number}].rows) return {len(checks)};")
        out.line(f"body_{name}({', '.join([*_passed(kernel, generation), '*context'])});")
        out.line("pipe_barrier(PIPE_ALL);")
        out.line("return 0;")
    out.line("}")
    return NativeCode(out, tuple(f"#include {header}" for header in native.includes), checks)


def _listed(param: Param) -> CheckText:
    return CheckText(f"rows of `{param.name}` are listed, and C++ reads tensors without a list")


def _require_text(kernel: KernelFunction, native: Native, generation: Generation) -> None:
    target, what = generation.name, f"the kernel `{kernel.name}` in C++"
    require_written_for(target, kernel)
    if not native.targets:
        reason = f'its C++ is written for a CPU: state `targets=("{target}",)`, or use `pto` instructions'
    elif native.entry:
        reason = "give its body with `cpp_src` or `cpp_body_path`, not a translation unit"
    elif native.folder:
        reason = "files next to a kernel are not emitted: move the text into the kernel"
    elif kernel.unit not in (CUBE, VECTOR):
        reason = f'say which cores run it: `core="{VECTOR}"` or `core="{CUBE}"`'
    else:
        return
    raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=kernel.loc)


def _parameter(param: Param, generation: Generation) -> str:
    if isinstance(param.type, ScalarType):
        return f"const {scalar_type(param.type.dtype)} {param.name}"
    return f"{_view_type(param, generation)} {param.name}"


def _view_type(param: Param, generation: Generation) -> str:
    dtype = param.type.dtype
    if dtype is None or dtype.name not in ELEMENTS:
        what = f"the parameter `{param.name}` of type {dtype}"
        reason = f"cores have {', '.join(ELEMENTS)}"
        raise UnsupportedByTarget(target=generation.name, what=what, reason=reason, loc=param.loc)
    dims = param.type.dims if isinstance(param.type, ViewType) else (0, 0)
    assert isinstance(param.type, TileType | ViewType) and dims is not None
    return f"TensorView<{'const ' * (param.role == IN)}{ELEMENTS[dtype.name]}, {len(dims)}>"


def _passed(kernel: KernelFunction, generation: Generation) -> Iterator[str]:
    """Yield the arguments of the function of the text, in the order of the parameters."""
    views = scalars = 0
    for param in kernel.params:
        if isinstance(param.type, ScalarType):
            kind = scalar_type(param.type.dtype)
            field = "f32" if kind == "float" else "i64"
            yield f"scalars[{scalars}].{field}" + (" != 0" if kind == "bool" else "")
            scalars += 1
        else:
            yield f"{_view_type(param, generation)}(views[{views}])"
            views += 1
