"""`@workload`: a function that says which tasks exist."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from pto_wsp.errors import NotYetSupported, UnknownParameter, UnsupportedSyntax, did_you_mean
from pto_wsp.lang import context
from pto_wsp.lang.source import FunctionSource, read_function
from pto_wsp.lang.tracing import Traced, Tracing
from pto_wsp.location import Location, caller_location

if TYPE_CHECKING:
    from pto_wsp.runtime.program import Program


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
            self._traced = Tracing(self._source, self._bound).run()
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
