"""`@workload`: a function that generates tasks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, overload

from pto_wsp.device.model import Device
from pto_wsp.errors import (
    BadHandle,
    CallArgument,
    NameClash,
    ScheduledPart,
    UnknownParameter,
    UnsupportedSyntax,
    UnusedCall,
    WrongValue,
    did_you_mean,
)
from pto_wsp.ir.schedule import DEFAULT, Directives
from pto_wsp.ir.verify import verify
from pto_wsp.lang.compiling import Program, compile_traced
from pto_wsp.lang.operands import kind_of
from pto_wsp.lang.schedule.schedulable import Schedulable
from pto_wsp.lang.source import FunctionSource, identifier, read_function
from pto_wsp.lang.workload.build_module import Traced, Tracing
from pto_wsp.lang.workload.functions import (
    COMBINE,
    SEQUENTIAL,
    Body,
    ComposedBodies,
    compose,
    declarations,
    functions,
)
from pto_wsp.lang.workload.nested import call_workload
from pto_wsp.lang.workload.operators import Restructurable, ScheduleOperator
from pto_wsp.lang.workload.tasks import Handle
from pto_wsp.lang.workload.trace import active_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import replace
from pto_wsp.visualize.notebook import module_html

if TYPE_CHECKING:
    from pto_wsp.prove.finding import Proof


class Workload(Schedulable, Restructurable):
    """A workload: a program that generates tasks.

    Calling it runs nothing. Outside a workload it binds values that hold unless a call of the program gives
    others: an axis (`DenseDyn(1000)`), a number, an array or a `Tensor` with data. Inside a workload it is
    part of that one: its parameters take tensors, views, axes and scalars.

    Attributes:
        name: of the function, or as `named`.
        body: its function, or the bodies that `combine` or `sequential` made it of.
        bound: values given to its parameters.
        policies: its schedule.
        operators: schedule operators, in the order in which they change it.
    """

    kind = "workload"
    advice = "; `.compile()` returns a program to run"

    def __init__(
        self,
        body: Body,
        bound: Mapping[str, object],
        name: str,
        policies: Directives = DEFAULT,
        operators: tuple[ScheduleOperator, ...] = (),
    ) -> None:
        self.body = body
        self.bound = dict(bound)
        self.name = name
        self.policies = policies
        self.operators = operators
        self._traced: Traced | None = None
        self.__name__ = name
        self.__doc__ = body.function.__doc__ if isinstance(body, FunctionSource) else None

    def __repr__(self) -> str:
        values = [n if n not in self.bound else f"{n}={_shown(self.bound[n])}" for n in self._parameters()]
        return f"<workload {self.name}({', '.join(values)}), not compiled: `.compile()` makes a program>"

    def _repr_html_(self) -> str:
        return module_html(f"workload {self.name}", self.trace().module)

    @property
    def definition(self) -> tuple[object, ...]:
        """What is equal for a workload of the same text, with the same values bound."""
        bound = tuple(value for item in sorted(self.bound.items()) for value in item)
        operators = tuple((operator.name, operator.args) for operator in self.operators)
        return *(source.function for source in functions(self.body)), self.name, bound, operators

    def _parameters(self) -> list[str]:
        return [*declarations(self.body)]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Return the workload with values bound to its parameters; in a workload, make its tasks.

        Raises:
            UnknownParameter: there is no such parameter.
            UnusedCall: the call leaves nothing open and gives arrays, as a run would.
            CallArgument: more arguments than parameters; in a workload, one that is missing or does not fit.
            ScheduledPart: in a workload, this one has a schedule.
        """
        loc = caller_location()
        names = self._parameters()
        given = dict(zip(names, args, strict=False))
        twice = [name for name in kwargs if name in given]
        if twice:
            problem, detail = f"gets `{twice[0]}` twice", "given by position and by name"
            raise CallArgument(workload=self.name, problem=problem, detail=detail, loc=loc)
        given |= kwargs
        if len(args) > len(names):
            problem, detail = "gets too many arguments", f"{len(args)} given, {len(names)} expected"
            notes = [(f"`{self.name}` is declared here", self.body.loc)]
            raise CallArgument(workload=self.name, problem=problem, detail=detail, loc=loc, notes=notes)
        unknown = [n for n in kwargs if n not in names]
        if unknown:
            raise UnknownParameter(
                program=self.name, name=unknown[0], advice=did_you_mean(unknown[0], names), loc=loc
            )
        bound = {**self.bound, **given}
        trace = active_trace()
        if trace is not None:
            self.require_unscheduled(loc)
            return call_workload(trace, self.name, self.body, bound, loc)
        if all(name in bound for name in names) and any(hasattr(v, "__dlpack__") for v in given.values()):
            arguments = ", ".join(f"{name}=..." for name in names)
            raise UnusedCall(name=self.name, arguments=arguments, loc=loc)
        return Workload(self.body, bound, self.name, self.policies, self.operators)

    def _scheduled(self, policies: Directives) -> Workload:
        return Workload(self.body, self.bound, self.name, policies, self.operators)

    def _restructured(self, operator: ScheduleOperator) -> Workload:
        operators = (*self.operators, operator)
        return Workload(self.body, self.bound, self.name, self.policies, operators)

    def require_unscheduled(self, loc: Location | None) -> None:
        """Raise ScheduledPart if the workload, which becomes part of another one at `loc`, has a schedule.

        Operators are part of its schedule.
        """
        if self.policies != DEFAULT or self.operators:
            raise ScheduledPart(part=self.name, loc=loc)

    def named(self, text: str) -> Workload:
        """Return the workload with another name; in `.pto` text, `_` replaces other characters.

        Raises:
            WrongValue: not a text, or an empty one.
        """
        if not isinstance(text, str) or not text:
            raise WrongValue(name="named", expected="a name", found=repr(text), loc=caller_location())
        return Workload(self.body, self.bound, text, self.policies, self.operators)

    def trace(self) -> Traced:
        """Return the workload as IR; its functions run once, at the first call.

        Raises:
            FrontendError: something in it has no meaning in a workload.
            VariableChanged: a variable around it or its kernels has changed since it was read.
            CannotRestructure: an operator would change results, or finds no place.
            MissingPackage: an operator needs a proof, and islpy is not installed.
        """
        if self._traced is None:
            traced = Tracing(identifier(self.name), self.body, self.bound).run()
            module = traced.module
            for operator in self.operators:
                module = operator.apply(module)
            self._traced = replace(traced, module=module.with_schedule(self.policies))
        self._traced.captured.check()
        return self._traced

    def prove(self) -> Proof:
        """Prove what holds for every size, shape and index array that the types of the workload allow.

        Claims: iterations of each `P` are independent; every region lies in its tensor and fits its
        parameter; instances of a kernel with `block_dim` write different elements; under
        `Deps.explicit()`, edges order all conflicts. Of a network: no process waits for ever.

        A proof is about calls whose tensors are different arrays.

        Returns:
            The findings: proved, refuted with the smallest counter-example, or unknown with a reason.

        Raises:
            MissingPackage: islpy is not installed.
            FrontendError, VariableChanged: as `compile` raises.
        """
        from pto_wsp.prove.prove import prove  # here: programs that prove nothing start without it

        return prove(verify(self.trace().module))

    def compile(
        self,
        target: str = "cpu",
        *,
        device: str | Path | Device | None = None,
        values: bool = True,
        expander: str = "bytecode",
        given: Mapping[str, Any] | None = None,
        proof: Proof | None = None,
    ) -> Program:
        """Compile for a target; needs no data and no sizes.

        Args:
            target: the name of a target, such as `cpu`; `pto targets` lists them.
            device: what `sim` simulates: a device, the name of a preset (`ascend_910b` without it), or the
                path of a TOML file.
            values: whether `sim` runs the kernels, too. Without, it finds time alone, and a run takes shapes
                in place of arrays that do not decide what runs: `run(X=(4096, 128))`.
            given: without `values`, arrays by the names of tensors that tasks write and that decide what
                runs, and `Sparse` values by the names of axes that `group_by` makes.
            expander: what expands the workload into tasks on the `cpu`: `bytecode`, which needs no
                compiler, or `source`, which is generated and compiled. Results and errors are the same.
            proof: what `prove` returned for this workload. Runs on the `cpu` leave out the checks of what is
                proved, unless tensors of a call share memory; `program.stats.proved` names both.

        Raises:
            FrontendError: something in the workload or its kernels has no meaning.
            VariableChanged: a variable around it or its kernels has changed since it was read.
            CompileError: the target or the device is unknown, or cannot build it.
            WrongValue: `proof` is that of another workload, or the target is not `cpu`.
        """
        return compile_traced(self.trace(), target, device, values, expander, given, proof)


def _shown(value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"<array {'x'.join(map(str, shape))}>" if isinstance(shape, tuple) else repr(value)


@overload
def workload(function: Callable[..., None], /) -> Workload: ...
@overload
def workload() -> Callable[[Callable[..., None]], Workload]: ...
def workload(function: Callable[..., None] | None = None, /) -> Any:
    """Make a workload of a function, which runs once to be recorded when the workload is first used.

    Parameters are `Tensor[dtype, dims...]`, `Scalar[dtype]`, `DenseDyn` or `Dense[n]`. The uses of an
    untyped parameter decide its type.
    """
    frame = sys._getframe(1)
    if function is None:
        return lambda inner: _workload_of(inner, frame)
    return _workload_of(function, frame)


@overload
def combine(*parts: Workload) -> Workload: ...
@overload
def combine(*parts: Handle) -> Handle: ...
def combine(*parts: Any) -> Any:
    """Put workloads, or calls inside a workload, in program order: ordered by data alone.

    Outside a workload it makes one of several: parameters of one name are one parameter.

    Raises:
        NameClash: parameters of one name that are declared differently.
        BadHandle: no workloads, or not the calls just before.
        ScheduledPart: one of the workloads has a schedule.
    """
    return _composed(COMBINE, parts)


@overload
def sequential(*parts: Workload) -> Workload: ...
@overload
def sequential(*parts: Handle) -> Handle: ...
def sequential(*parts: Any) -> Any:
    """Put workloads, or calls inside a workload, in order: each is complete before the next begins.

    As `combine`, outside a workload and in one.
    """
    return _composed(SEQUENTIAL, parts)


def _composed(kind: str, parts: Sequence[object]) -> Workload | Handle:
    loc = caller_location()
    trace = active_trace()
    expected = Workload if trace is None else Handle
    for part in parts or [None]:
        if not isinstance(part, expected):
            found = "a workload that is not called" if isinstance(part, Workload) else kind_of(part)
            wanted = "workloads" if trace is None else "calls of workloads and kernels"
            raise BadHandle(what=kind, problem=f"expected {wanted}, found {found}", loc=loc)
    if trace is not None:
        return compose(trace, kind, [p for p in parts if isinstance(p, Handle)], loc)
    workloads = [p for p in parts if isinstance(p, Workload)]
    body = ComposedBodies(kind, tuple(part.body for part in workloads), loc)
    declarations(body)
    bound: dict[str, object] = {}
    for part in workloads:
        part.require_unscheduled(loc)
        for name, value in part.bound.items():
            if bound.setdefault(name, value) is not value:
                raise NameClash(kind="values of parameters", name=name, loc=loc)
    joint = "_and_" if kind == COMBINE else "_then_"
    return Workload(body, bound, joint.join(part.name for part in workloads))


def _workload_of(function: object, frame: FrameType) -> Workload:
    source = function_source(function, frame)
    return Workload(source, {}, source.function.__name__)


def function_source(function: object, frame: FrameType) -> FunctionSource:
    """Return the source of a function that describes a workload or a process.

    Raises:
        UnsupportedSyntax: not a plain function.
    """
    source = read_function(_plain(function), frame)
    if inspect.isgeneratorfunction(source.function) or inspect.iscoroutinefunction(source.function):
        raise UnsupportedSyntax(
            construct="`yield` or `async`",
            where="workload",
            detail="not supported",
            advice="write a plain function",
            loc=source.loc,
        )
    return source


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
