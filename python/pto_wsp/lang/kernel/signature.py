"""The parameters of a kernel, from the annotations of its function."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from pto_wsp.errors import BadAnnotation
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.kernel import IN, Param
from pto_wsp.ir.scalar import Var
from pto_wsp.lang.annotations import (
    Constexpr,
    ConstexprAnnotation,
    RoleAnnotation,
    ScalarAnnotation,
    TensorAnnotation,
    TileAnnotation,
)
from pto_wsp.lang.arithmetic import SCALAR_DTYPES
from pto_wsp.lang.kernel.declarations import ConstexprType, KernelParam, TemplateType
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.source import MISSING, FunctionSource, quoted_annotation
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.location import Location
from pto_wsp.support.arrays import shown
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import DYN, MAX_TILE_BYTES, ScalarType, TileType, ViewType

CONSTANT_TYPES = (int, float, bool, str, DType)
"""What `Constexpr[...]` can hold."""


def read_signature(source: FunctionSource) -> tuple[KernelParam, ...]:
    """Return the parameters of a kernel.

    Raises:
        BadAnnotation, UnsupportedSyntax, UnknownName: at the parameter that cannot be.
    """
    defaults = source.parameters("kernel")
    constants = {name: Scalar(Var(name)) for name, arg in source.args.items() if _is_constexpr(source, arg)}
    return tuple(_Reader(source, arg, constants).param(defaults[name]) for name, arg in source.args.items())


def concrete_param(
    source: FunctionSource, param: KernelParam, constants: Mapping[str, object], loc: Location | None
) -> KernelParam:
    """Return a parameter for the values of the Constexpr parameters of a task at `loc`.

    Raises:
        BadAnnotation: these values give sizes or an element type that it cannot have.
    """
    if not isinstance(param.type, TemplateType):
        return param
    reader = _Reader(source, source.args[param.name], {})
    try:
        return replace(param, type=reader.filled(param.type, constants))
    except BadAnnotation as error:
        error.notes += (("the task was made here", loc),) if loc is not None else ()
        raise


def specialised_params(params: tuple[KernelParam, ...], views: Mapping[str, ViewType]) -> tuple[Param, ...]:
    """Return the parameters of the IR: without constants, and with the views of bare tensors in `views`."""
    found = []
    for param in params:
        if not isinstance(param.type, ConstexprType):
            assert not isinstance(param.type, TemplateType)
            found.append(Param(param.name, param.role, views.get(param.name, param.type), param.loc))
    return tuple(found)


@record
class _Reader:
    """Reads one parameter; `constants` are placeholders for Constexpr parameters in its type."""

    source: FunctionSource
    arg: ast.arg
    constants: Mapping[str, Scalar]

    def param(self, default: object) -> KernelParam:
        loc = self.source.at(self.arg)
        named = {n.id for n in ast.walk(self.arg) if isinstance(n, ast.Name)}
        for name in sorted(named & self.constants.keys() & self.source.names.keys()):
            expected = f"a name with one meaning, or the parameter as `{name!r}`"
            raise self.bad(expected, f"`{name}`, a Constexpr parameter and a variable around the kernel")
        annotation = self.source.annotation(self.arg, self.constants)
        template = self.template(annotation)
        role, kind = template or self.role_and_type(annotation)
        is_value = isinstance(kind, (ScalarType, ConstexprType))
        if default is not MISSING and not is_value:
            raise self.bad("no default value", "one")
        if default is not MISSING and isinstance(kind, ConstexprType) and not _is_of(default, kind.type):
            raise self.bad(f"a default that is a constant {kind.type.__name__}", shown(default))
        name = self.arg.arg
        return KernelParam(
            name, role, kind, default, Location(loc.file, loc.line, loc.col, loc.col + len(name))
        )

    def role_and_type(
        self, annotation: object
    ) -> tuple[str, TileType | ViewType | ScalarType | ConstexprType]:
        match annotation:
            case RoleAnnotation(role=role, inner=TileAnnotation(args=args)):
                return role, self.tile(args)
            case RoleAnnotation(role=role, inner=TensorAnnotation(args=args)):
                return role, self.view(args)
            case RoleAnnotation(role=role, inner=inner) if inner is Tensor:
                return role, ViewType(None, None)
            case ScalarAnnotation(arg=dtype):
                if dtype not in SCALAR_DTYPES:
                    raise self.bad("one of " + ", ".join(map(str, SCALAR_DTYPES)), repr(dtype))
                assert isinstance(dtype, DType)
                return IN, ScalarType(dtype)
            case ConstexprAnnotation(type=type() as constant):
                if constant not in CONSTANT_TYPES:
                    names = ", ".join(t.__name__ for t in CONSTANT_TYPES)
                    raise self.bad(f"Constexpr of one of {names}", constant.__name__)
                return IN, ConstexprType(constant)
            case TileAnnotation() | TensorAnnotation():
                raise self.bad("In[...], Out[...] or InOut[...]", "a type without a role")
            case None:
                raise self.bad("an annotation", "none")
            case _:
                raise self.bad("In, Out, InOut, Scalar or Constexpr with a type", _text(annotation))

    def template(self, annotation: object) -> tuple[str, TemplateType] | None:
        """Return the role and type of a parameter whose type depends on Constexpr parameters, else None."""
        if not isinstance(annotation, RoleAnnotation):
            return None
        inner = annotation.inner
        if not isinstance(inner, (TileAnnotation, TensorAnnotation)):
            return None
        args = tuple(self.constants.get(a, a) if isinstance(a, str) else a for a in inner.args)
        if not any(isinstance(arg, Scalar) for arg in args):
            return None
        return annotation.role, TemplateType(replace(inner, args=args))

    def filled(self, template: TemplateType, constants: Mapping[str, object]) -> TileType | ViewType:
        """Return a type for the values of constants."""
        args = tuple(_value(arg, constants) for arg in template.annotation.args)
        return self.tile(args) if isinstance(template.annotation, TileAnnotation) else self.view(args)

    def tile(self, args: tuple[object, ...]) -> TileType:
        match args:
            case (rows, cols, DType() as dtype) if _is_size(rows) and _is_size(cols):
                tile = TileType(_int(rows), _int(cols), dtype)
                if tile.num_bytes > MAX_TILE_BYTES:
                    found = f"{tile.num_bytes} bytes, {tile.rows} x {tile.cols} of {dtype}"
                    hint = "take a `Tensor` parameter, and loop over parts of it with `pto.tiles`"
                    raise self.bad(f"a tile of at most {MAX_TILE_BYTES} bytes", found, hint)
                return tile
        raise self.bad("Tile[rows, cols, dtype] with positive numbers", f"Tile[{_texts(args)}]")

    def view(self, args: tuple[object, ...]) -> ViewType:
        match args:
            case (DType() as dtype, *dims) if dims and all(d is DYN or _is_size(d) for d in dims):
                return ViewType(dtype, tuple(None if d is DYN else _int(d) for d in dims))
        raise self.bad("Tensor[dtype, dims...] with numbers or DYN", f"Tensor[{_texts(args)}]")

    def bad(self, expected: str, found: str, hint: str | None = None) -> BadAnnotation:
        return BadAnnotation(
            param=self.arg.arg,
            function=self.source.function.__name__,
            expected=expected,
            found=found,
            loc=self.source.at(self.arg.annotation or self.arg),
            hint=hint,
        )


def _is_constexpr(source: FunctionSource, arg: ast.arg) -> bool:
    """Whether a parameter is annotated as a constant; whether it can be one is read later."""
    node = arg.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = quoted_annotation(node)
    if not isinstance(node, ast.Subscript):
        return False
    names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    return names <= source.names.keys() and source.evaluate(node.value, "an annotation") is Constexpr


def _value(arg: object, constants: Mapping[str, object]) -> object:
    """Return an argument of a template for the values of constants."""
    if not isinstance(arg, Scalar):
        return arg
    if isinstance(arg.expr, Var):
        return constants[arg.expr.name]
    scope = {name: value for name, value in constants.items() if isinstance(value, (int, float))}
    return evaluate(arg.expr, scope)


def _is_of(value: object, kind: type) -> bool:
    """Whether a value is of a type of constants; integers become floats."""
    return type(value) is kind or (kind is float and type(value) is int)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value > 0)


def _int(value: object) -> int:
    assert isinstance(value, (int, np.integer))
    return int(value)


def _text(value: object) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def _texts(values: tuple[object, ...]) -> str:
    return ", ".join(map(_text, values))
