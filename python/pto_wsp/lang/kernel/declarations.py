"""The declaration of a kernel: parameters, workspace, kind of core, instances, cost and name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pto_wsp.errors import BadKernelOption, UnknownName, did_you_mean
from pto_wsp.ir.kernel import UNITS, KernelFunction
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.lang.annotations import TensorAnnotation, TileAnnotation
from pto_wsp.lang.captured import Reading
from pto_wsp.lang.operands import Scalar, expression
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType

MAX_BLOCKS = 1 << 16
CORES = tuple(unit for unit in UNITS if unit != "control")


@record
class ConstexprType:
    """The type of a parameter that is a constant when the kernel is compiled."""

    type: type


@record
class TemplateType:
    """The type of a tile or view whose sizes or element type depend on Constexpr parameters.

    Attributes:
        annotation: a TileAnnotation or TensorAnnotation, in whose arguments a parameter is a Scalar.
    """

    annotation: TileAnnotation | TensorAnnotation


@record
class KernelParam:
    """A parameter as written; `default` is `MISSING` without one."""

    name: str
    role: str
    type: TileType | ViewType | ScalarType | ConstexprType | TemplateType
    default: object
    loc: Location

    @property
    def is_generic(self) -> bool:
        """Whether the kernel is specialised by this parameter."""
        if isinstance(self.type, ViewType):
            return self.type.dims is None
        return isinstance(self.type, ConstexprType)


class Extents:
    """The extents of a view, as a task's workspace and cost mention them."""

    def __init__(self, shape: tuple[Scalar, ...]) -> None:
        self.shape = shape

    @property
    def rows(self) -> Scalar:
        """Elements of the first dimension."""
        return self.shape[0]

    @property
    def cols(self) -> Scalar:
        """Elements of the second dimension."""
        return self.shape[1]


class TaskParams:
    """The arguments of one task: `p.n` is a scalar, `p.x.rows` and `p.x.shape[1]` are extents of a view."""

    def __init__(self, kernel: str, values: Mapping[str, object]) -> None:
        self._kernel = kernel
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            where = f"kernel `{self._kernel}`"
            advice = did_you_mean(name, self._values)
            raise UnknownName(name=name, where=where, advice=advice, loc=caller_location())
        return self._values[name]


Amount = Callable[[Any], "Scalar | int"]
"""A function of a task's arguments, see `TaskParams`."""


@record
class KernelOptions:
    """What `@kernel` was given beside the kernel's text."""

    workspace: Amount | None = None
    core: str = "any"
    block_dim: int = 1
    cost: Amount | None = None
    name: str | None = None

    def check(self, kernel: str, is_cpp: bool, loc: Location) -> None:
        """Raise BadKernelOption for the first part that no kernel, or not this one, can have."""

        def bad(problem: str, expected: str, found: object, advice: str = "") -> BadKernelOption:
            fields = {"problem": problem, "expected": expected, "found": found, "advice": advice}
            return BadKernelOption(kernel=kernel, loc=loc, **fields)

        if self.core not in CORES:
            raise bad("there is no such core", "one of " + ", ".join(CORES), repr(self.core))
        if type(self.block_dim) is not int or not 1 <= self.block_dim <= MAX_BLOCKS:
            raise bad("`block_dim` is no count", f"an integer in [1, {MAX_BLOCKS}]", repr(self.block_dim))
        for option in ("workspace", "cost"):
            value = getattr(self, option)
            if value is not None and not callable(value):
                raise bad(f"`{option}` is no function", f"`{option}=lambda p: ...`", repr(value))
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise bad("`name` is no name", "a text", repr(self.name))
        if self.workspace is not None and not is_cpp:
            advice = "a kernel of `pto` keeps what it needs in tiles"
            raise bad("it asks for workspace", "a kernel in C++", "a body in Python", advice)


class SpecialisableKernel(Protocol):
    """A kernel, as tasks know it."""

    name: str
    params: tuple[KernelParam, ...]
    declaration: KernelOptions

    @property
    def loc(self) -> Location:
        """Where it is defined."""
        ...

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Its functions with the values of the variables around them."""
        ...

    def concrete(self, constants: Mapping[str, object], loc: Location | None) -> tuple[KernelParam, ...]:
        """Return its parameters for the values of constants, for a task at `loc`: none is a template."""
        ...

    def specialise(self, views: Mapping[str, ViewType], constants: Mapping[str, object]) -> KernelFunction:
        """Return its IR for the types of bare tensors and the values of constants."""
        ...


def amount(
    kernel: SpecialisableKernel, option: str, values: Mapping[str, object], loc: Location | None
) -> Expr | None:
    """Return the workspace (bytes) or cost (ns) of one task, or None if the kernel declares none.

    Args:
        kernel: the kernel.
        option: `workspace` or `cost`.
        values: the task's arguments: Scalars, `Extents` and constants.
        loc: the place of the task.

    Raises:
        BadKernelOption: what the function returned is no integer, or below 0.
    """
    function: Amount | None = getattr(kernel.declaration, option)
    if function is None:
        return None
    found = function(TaskParams(kernel.name, values))
    expr = expression(found)
    if expr is None or expr.dtype is not i64 or (isinstance(expr, Const) and expr.value < 0):
        unit = "bytes" if option == "workspace" else "ns"
        raise BadKernelOption(
            kernel=kernel.name,
            problem=f"its `{option}` is no number of {unit}",
            expected="an integer >= 0",
            found=type(found).__name__
            if expr is None
            else str(expr.dtype)
            if expr.dtype is not i64
            else found,
            advice="divide with `//`" if expr is not None and expr.dtype.is_float else "",
            loc=loc,
            notes=[("the kernel is declared here", kernel.loc)],
        )
    return expr
