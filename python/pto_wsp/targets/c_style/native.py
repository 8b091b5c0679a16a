"""Kernels that users write in C++: parameters, arguments and constants of a function around their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import IN, KernelFunction, Native, Param
from pto_wsp.ir.scalar import Value
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.spelling import INTEGERS, c_string, literal, scalar_type
from pto_wsp.types.dtype import DType, b1, f32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType

ELEMENTS: dict[str, str] = {
    **INTEGERS,
    "f32": "float",
    "f64": "double",
    "f16": "F16",
    "bf16": "Bf16",
    "b1": "Bool",
}
"""C++ types of the elements of a `TensorView`."""

GENERATED = "<generated>"
"""What the compiler calls the lines around a user's text."""


def require_text(kernel: KernelFunction, target: str) -> None:
    """Raise UnsupportedByTarget for C++ that is for a CPU, a whole file, or includes files next to it."""
    native = kernel.native
    assert native is not None
    if not native.targets:
        reason = f'its C++ is written for a CPU: state `targets=("{target}",)`, or use `pto` instructions'
    elif native.entry:
        reason = "give its body with `cpp_src` or `cpp_body_path`, not a translation unit"
    elif native.folder:
        reason = "files next to a kernel are not emitted: move the text into the kernel"
    else:
        return
    what = f"the kernel `{kernel.name}` in C++"
    raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=kernel.loc)


def write_text(native: Native, out: TextWriter) -> None:
    """Write the user's text so that the compiler, and `__LINE__`, know its places."""
    if native.loc is not None:
        out.line(f"#line {native.loc.line} {c_string(native.loc.file)}")
    margin = " " * (native.loc.col - 1) if native.loc is not None and native.loc.col else ""
    out.line(margin + native.source)
    out.line(f'\n#line 1 "{GENERATED}"')


def parameters(kernel: KernelFunction, elements: Mapping[str, str] = ELEMENTS) -> Iterator[str]:
    """Yield the parameters of the function of the text, in order; `elements` are the types of elements."""
    for param in kernel.params:
        yield f"[[maybe_unused]] {_parameter_type(param, elements)} {param.name}"


def arguments(kernel: KernelFunction, elements: Mapping[str, str] = ELEMENTS) -> Iterator[tuple[str, str]]:
    """Yield the name of every parameter, and its value in the function of the ABI, in order."""
    views = scalars = 0
    for param in kernel.params:
        if isinstance(param.type, ScalarType):
            kind = scalar_type(param.type.dtype)
            field = "f32" if kind == "float" else "i64"
            yield param.name, f"scalars[{scalars}].{field}" + (" != 0" if kind == "bool" else "")
            scalars += 1
        else:
            yield param.name, f"{_parameter_type(param, elements)}(views[{views}])"
            views += 1


def _parameter_type(param: Param, elements: Mapping[str, str]) -> str:
    match param.type:
        case ScalarType(dtype=dtype):
            return f"const {scalar_type(dtype)}"
        case TileType(dtype=dtype):
            rank = 2
        case ViewType(dtype=DType() as dtype, dims=dims) if dims is not None:
            rank = len(dims)
        case _:
            raise AssertionError("not a specialised parameter")
    return f"TensorView<{'const ' * (param.role == IN)}{elements[dtype.name]}, {rank}>"


def write_constants(native: Native, out: TextWriter, elements: Mapping[str, str] = ELEMENTS) -> None:
    """Write the declarations of the constant parameters; `elements` are the types of elements."""
    for name, value in native.constants:
        if isinstance(value, DType):
            out.line(f"[[maybe_unused]] typedef {elements[value.name]} {name};")
        else:
            out.line(f"[[maybe_unused]] constexpr auto {name} = {constant_value(value)};")


def constant_value(value: object) -> str:
    """Return the value of a constant parameter."""
    match value:
        case DType():
            return f"DType::{value.name}"
        case str():
            return c_string(value)
        case bool() | int() | float():
            return _number(value)
        case _:
            raise AssertionError("not a constant of a kernel")


def _number(value: Value) -> str:
    dtype = b1 if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    return literal(value, dtype)
