"""`@workload`: a function that says which tasks exist."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pto_wsp.errors import (
    BadAnnotation,
    NotYetSupported,
    UnknownParameter,
    UnsupportedSyntax,
    WrongValue,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Var
from pto_wsp.lang import context
from pto_wsp.lang.arithmetic import SCALAR_DTYPES
from pto_wsp.lang.assemble import assemble
from pto_wsp.lang.ragged import Ragged, RaggedAxis
from pto_wsp.lang.scalar import Scalar
from pto_wsp.lang.source import MISSING, FunctionSource, read_function
from pto_wsp.lang.surface import RaggedAnnotation, ScalarAnnotation, TensorAnnotation
from pto_wsp.lang.tensor import Tensor, parse_dim
from pto_wsp.lang.trace import Trace, Untyped
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import record
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DType, dtype_of_numpy
from pto_wsp.types.layout import ROW_MAJOR, MemLayout
from pto_wsp.types.tile import ScalarType

if TYPE_CHECKING:
    from pto_wsp.runtime.program import Program


@record
class Traced:
    """A workload as IR.

    Attributes:
        module: its module, whose entry it is.
        defaults: arrays and scalars that a program uses unless a call gives others, by parameter.
        packed: the tensors that do not lie in row-major order, by parameter.
    """

    module: Module
    defaults: Mapping[str, np.ndarray | Ragged | int | float]
    packed: Mapping[str, Tensor]


CompileHook = Callable[[Traced, str], Any]

_compile_hook: list[CompileHook] = []


def set_compile_hook(hook: CompileHook) -> None:
    """Say what `Workload.compile` calls; the top level does, since this layer knows no targets."""
    _compile_hook[:] = [hook]


class Workload:
    """A workload: a program that generates tasks.

    Calling it binds values that hold unless a call of the program gives others: an axis (`DenseDyn(1000)`),
    a number, an array or a `Tensor` with data.
    """

    def __init__(self, source: FunctionSource, bound: Mapping[str, object] | None = None) -> None:
        self._source = source
        self._bound = dict(bound or {})
        self._traced: Traced | None = None
        self.name = source.function.__name__
        self.__name__ = self.name
        self.__doc__ = source.function.__doc__
        if inspect.isgeneratorfunction(source.function) or inspect.iscoroutinefunction(source.function):
            raise self._refused("`yield` or `async`", "write a plain function", source.loc)

    def __repr__(self) -> str:
        return f"<workload {self.name}({', '.join(self._source.parameters('workload'))})>"

    def __call__(self, *args: object, **kwargs: object) -> Workload:
        """Return the workload with values bound to its parameters.

        Raises:
            UnknownParameter: there is no such parameter.
            WrongValue: the parameter cannot have this value.
        """
        if context.ACTIVE.get() is not None:
            raise NotYetSupported(
                feature="a workload inside a workload",
                detail="",
                advice="call a plain Python function instead",
                loc=caller_location(),
            )
        names = list(self._source.parameters("workload"))
        given = dict(zip(names, args, strict=False)) | kwargs
        unknown = [n for n in kwargs if n not in names] or ["one more"] * (len(args) > len(names))
        if unknown:
            raise UnknownParameter(
                program=self.name,
                name=unknown[0],
                advice=did_you_mean(unknown[0], names),
                loc=caller_location(),
            )
        return Workload(self._source, {**self._bound, **given})

    def trace(self) -> Traced:
        """Return the workload as IR; the function runs once, at the first call.

        Raises:
            FrontendError: something in it has no meaning in a workload.
        """
        if self._traced is None:
            self._traced = _Tracing(self._source, self._bound).run()
        return self._traced

    def compile(self, target: str = "cpu") -> Program:
        """Compile for a target; needs no data and no sizes.

        Raises:
            FrontendError: something in the workload or its kernels has no meaning.
            CompileError: the target is unknown, or cannot build it.
        """
        return _compile_hook[0](self.trace(), target)

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            raise NotYetSupported(feature=f"`.{name}`", detail="", advice="", loc=caller_location())
        raise AttributeError(f"a workload has no attribute {name!r}; `.compile()` returns a program to run")

    def _refused(self, construct: str, advice: str, loc: Location | None) -> UnsupportedSyntax:
        return UnsupportedSyntax(
            construct=construct, where="workload", detail="not supported", advice=advice, loc=loc
        )


_LATER = frozenset(
    {"dispatch", "streams", "stream_by", "timing", "task_graph", "spatial_map", "schedule", "named"}
)


@overload
def workload(function: Callable[..., None], /) -> Workload: ...
@overload
def workload() -> Callable[[Callable[..., None]], Workload]: ...
def workload(function: Callable[..., None] | None = None, /) -> Any:
    """Make a workload of a function, which runs once to be recorded when the workload is first used.

    Parameters are `Tensor[dtype, dims...]`, `Scalar[dtype]`, `DenseDyn`, `Dense[n]`, or untyped: then their
    uses decide what they are.
    """
    frame = sys._getframe(1)
    if function is None:
        return lambda inner: Workload(read_function(_plain(inner), frame))
    return Workload(read_function(_plain(function), frame))


def _plain(function: object) -> FunctionType:
    if not isinstance(function, FunctionType):
        raise UnsupportedSyntax(
            construct=f"`@workload` of a {type(function).__name__}",
            where="program",
            detail="expected a function",
            advice="decorate a function with `@workload`",
            loc=caller_location(),
        )
    return function


class _Tracing:
    """One recording of a workload."""

    def __init__(self, source: FunctionSource, bound: Mapping[str, object]) -> None:
        self.source = source
        self.bound = bound
        self.trace = Trace(source.function.__name__, source.loc, source.names)
        self.defaults: dict[str, np.ndarray | Ragged | int | float] = {}

    def run(self) -> Traced:
        arguments = self.arguments()
        token = context.ACTIVE.set(self.trace)
        try:
            result = self.source.function(**arguments)
            self.trace.finish()
            if result is not None:
                raise UnsupportedSyntax(
                    construct="returning a value",
                    where="workload",
                    detail="a workload describes tasks",
                    advice="write results to tensors",
                    loc=self.source.loc,
                )
            module = assemble(self.trace)
        finally:
            context.ACTIVE.reset(token)
        for name, tensor in self.trace.captured.items():
            if isinstance(tensor, Tensor) and tensor.data is not None:
                self.defaults[name] = tensor.data
        named = {**self.trace.params, **self.trace.captured}
        packed = {n: t for n, t in named.items() if isinstance(t, Tensor) and t.stored is not t}
        return Traced(module, self.defaults, packed)

    def arguments(self) -> dict[str, object]:
        """Return a stand-in for every parameter; axes first, since tensors may name them."""
        defaults = self.source.parameters("workload")
        annotations = {name: self.annotation(name) for name in defaults}
        ordered = sorted(
            defaults, key=lambda n: isinstance(annotations[n], (TensorAnnotation, RaggedAnnotation))
        )
        found: dict[str, object] = {}
        for name in ordered:
            value = self.bound.get(name, defaults[name])
            found[name] = _Parameter(self, name, annotations[name]).stand_in(
                None if value is MISSING else value
            )
        self.trace.params = {n: self.trace.params[n] for n in defaults if n in self.trace.params}
        return found

    def annotation(self, name: str) -> object:
        if name in self.source.args:
            return self.source.annotation(self.source.args[name])
        return inspect.get_annotations(self.source.function, eval_str=True).get(name)


class _Parameter:
    """One parameter of a workload's function."""

    def __init__(self, tracing: _Tracing, name: str, annotation: object) -> None:
        self.tracing = tracing
        self.trace = tracing.trace
        self.name = name
        self.annotation = annotation
        source = tracing.source
        self.loc = source.at(source.args[name]) if name in source.args else source.loc

    def stand_in(self, value: object) -> object:
        """Declare the parameter, with its default if there is one, and return what the function gets."""
        match self.annotation:
            case TensorAnnotation(args=args):
                return self.tensor(*self.tensor_type(args), value)
            case ScalarAnnotation(arg=dtype):
                return self.scalar(dtype, value)
            case RaggedAnnotation(outer=outer):
                return self.ragged(outer, value)
            case Dense(extent=extent):
                if value not in (None, extent, self.annotation):
                    raise self.wrong_value(f"the extent {extent}", value)
                self.trace.fixed[self.name] = extent
                return extent
            case DenseDyn(extent=extent):
                return self.axis(extent if value is None else value)
            case None:
                return self.untyped(value)
            case _ if self.annotation is DenseDyn:
                return self.axis(value)
        raise self.bad("Tensor, Scalar, DenseDyn or Dense[n]", _text(self.annotation))

    def untyped(self, value: object) -> object:
        if isinstance(value, (Dense, DenseDyn)):
            return self.axis(value)
        if isinstance(value, Tensor):
            return self.tensor(value.dtype, value.dims, value.layout, value)
        if isinstance(value, np.ndarray) and (dtype := dtype_of_numpy(value.dtype)) is not None:
            return self.tensor(dtype, tuple("" for _ in value.shape), ROW_MAJOR, value)
        param = Untyped(self.name, self.trace.name, self.loc)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.tracing.defaults[self.name] = value
        elif value is not None:
            raise self.wrong_value("an axis, an array, a Tensor or a number", value)
        self.trace.declare(self.name, param, self.loc)
        return param

    def axis(self, value: object) -> Scalar:
        extent = value.extent if isinstance(value, (Dense, DenseDyn)) else value
        if extent is not None and (not isinstance(extent, (int, np.integer)) or extent < 0):
            raise self.wrong_value("an extent >= 0", value)
        default = None if extent is None else int(extent)
        self.trace.declare(self.name, w.SizeParam(self.name, default, self.loc), self.loc)
        return Scalar(Var(self.name))

    def ragged(self, outer: object, value: object) -> RaggedAxis:
        if not isinstance(outer, str) or not outer.isidentifier():
            raise self.bad('Ragged["size"]', f"Ragged[{outer!r}]")
        if value is not None:
            if not isinstance(value, Ragged):
                raise self.wrong_value("Ragged.lengths(array) or Ragged.indptr(array)", value)
            self.tracing.defaults[self.name] = value
        axis = RaggedAxis(w.RaggedParam(self.name, outer, self.loc))
        self.trace.declare(self.name, axis, self.loc)
        self.trace.declare_sizes((outer,), self.loc)
        return axis

    def scalar(self, dtype: object, value: object) -> Scalar:
        if not isinstance(dtype, DType) or dtype not in SCALAR_DTYPES:
            raise self.bad("one of " + ", ".join(map(str, SCALAR_DTYPES)), repr(dtype))
        if value is not None:
            if not isinstance(value, (int, float)):
                raise self.wrong_value("a number", value)
            self.tracing.defaults[self.name] = value
        self.trace.declare(self.name, w.ScalarParam(self.name, ScalarType(dtype), self.loc), self.loc)
        return Scalar(Var(self.name, dtype))

    def tensor(self, dtype: DType, dims: tuple[int | str, ...], layout: MemLayout, value: object) -> Tensor:
        data = value.data if isinstance(value, Tensor) else value
        if data is not None:
            if not isinstance(data, np.ndarray):
                raise self.wrong_value("an array", value)
            self.tracing.defaults[self.name] = data
        fixed = [self.trace.fixed.get(str(d), d) for d in dims]
        named = tuple(self.trace.unique(f"{self.name}_{i}") if d == "" else d for i, d in enumerate(fixed))
        if not layout.accepts(named):
            raise self.bad(f"two or more dimensions, the last a number, for {layout}", f"{dims}")
        tensor = Tensor(shape=named, dtype=dtype, layout=layout).called(self.name)
        self.trace.declare(self.name, tensor, self.loc)
        self.trace.declare_sizes(named, self.loc)
        return tensor

    def tensor_type(self, args: tuple[object, ...]) -> tuple[DType, tuple[int | str, ...], MemLayout]:
        last = args[-1] if args else None
        layout = last if isinstance(last, MemLayout) else ROW_MAJOR
        sizes = args[1:-1] if layout is last else args[1:]
        dims = tuple(parse_dim(d) for d in sizes)
        if not args or not isinstance(args[0], DType) or not dims or None in dims:
            shown = ", ".join(map(_text, args))
            raise self.bad(
                "Tensor[dtype, dims...] with numbers and names, then a layout or none", f"Tensor[{shown}]"
            )
        return args[0], tuple(d for d in dims if d is not None), layout

    def bad(self, expected: str, found: str) -> BadAnnotation:
        return BadAnnotation(
            param=self.name,
            function=self.trace.name,
            expected=expected,
            found=found,
            loc=self.loc,
            hint="workloads take `Tensor[...]`, `Scalar[dtype]`, `DenseDyn`, `Dense[n]` and `Ragged[size]`",
        )

    def wrong_value(self, expected: str, value: object) -> WrongValue:
        return WrongValue(name=self.name, expected=expected, found=_text(value), loc=self.loc)


def _text(value: object) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)
