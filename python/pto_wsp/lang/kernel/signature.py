"""The parameters of a kernel, from the annotations of its function."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from pto_wsp.errors import BadAnnotation
from pto_wsp.ir.kernel import IN, Param
from pto_wsp.lang.annotations import (
    ConstexprAnnotation,
    RoleAnnotation,
    ScalarAnnotation,
    TensorAnnotation,
    TileAnnotation,
)
from pto_wsp.lang.arithmetic import SCALAR_DTYPES
from pto_wsp.lang.kernel.declarations import ConstexprType, KernelParam
from pto_wsp.lang.source import MISSING, FunctionSource
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.location import Location
from pto_wsp.support.record import record
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
    return tuple(_Reader(source, arg).param(defaults[name]) for name, arg in source.args.items())


def specialised_params(params: tuple[KernelParam, ...], views: Mapping[str, ViewType]) -> tuple[Param, ...]:
    """Return the parameters of the IR: constants dropped, bare tensors as `views` says."""
    found = []
    for param in params:
        if not isinstance(param.type, ConstexprType):
            found.append(Param(param.name, param.role, views.get(param.name, param.type), param.loc))
    return tuple(found)


@record
class _Reader:
    source: FunctionSource
    arg: ast.arg

    def param(self, default: object) -> KernelParam:
        loc = self.source.at(self.arg)
        annotation = self.source.annotation(self.arg)
        role, kind = self.role_and_type(annotation)
        is_value = isinstance(kind, (ScalarType, ConstexprType))
        if default is not MISSING and not is_value:
            raise self.bad("no default value", "one")
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

    def tile(self, args: tuple[object, ...]) -> TileType:
        match args:
            case (rows, cols, DType() as dtype) if _is_size(rows) and _is_size(cols):
                tile = TileType(_int(rows), _int(cols), dtype)
                if tile.num_bytes > MAX_TILE_BYTES:
                    raise self.bad(f"a tile of at most {MAX_TILE_BYTES} bytes", f"{tile.rows} x {tile.cols}")
                return tile
        raise self.bad("Tile[rows, cols, dtype] with positive numbers", f"Tile[{_texts(args)}]")

    def view(self, args: tuple[object, ...]) -> ViewType:
        match args:
            case (DType() as dtype, *dims) if dims and all(d is DYN or _is_size(d) for d in dims):
                return ViewType(dtype, tuple(None if d is DYN else _int(d) for d in dims))
        raise self.bad("Tensor[dtype, dims...] with numbers or DYN", f"Tensor[{_texts(args)}]")

    def bad(self, expected: str, found: str) -> BadAnnotation:
        return BadAnnotation(
            param=self.arg.arg,
            function=self.source.function.__name__,
            expected=expected,
            found=found,
            loc=self.source.at(self.arg.annotation or self.arg),
        )


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value > 0)


def _int(value: object) -> int:
    assert isinstance(value, (int, np.integer))
    return int(value)


def _text(value: object) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def _texts(values: tuple[object, ...]) -> str:
    return ", ".join(map(_text, values))
