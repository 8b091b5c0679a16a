"""Schedules: how the tasks of a program run. A schedule is data, and replacing it never changes a result.

A schedule is a list of directives, at most one of each kind. A kind that is absent has its default. In `.pto`
text the schedule follows the functions of a module:

    schedule  = "SCHEDULE" "{" newline { line } "}"
    line      = kind "=" name [ "(" argument { "," argument } ")" ] newline
    argument  = key | "n" "=" integer | "at" "=" "[" integer { "," integer } "]"
              | "stage" "(" "%kernel." name { "," "%kernel." name } "," "n" "=" integer ")"

    SCHEDULE {
      dispatch = affinity(%t.b, n = 4)
      window = stall(n = 8192)
      ready = order_by(%t.b, -dim(%t.args.k, 0))
    }

A key is a scalar expression over a task `t`, with these names:

- `t.b` is the index of the loop around the task whose variable is `b`, or that runs over the axis `b`;
- `t.kernel` is the number of the task's kernel in the module, `kernel.attend` that of the kernel `attend`;
- `dim(t.args.k, 0)` and `dim(t.args.k, 1)` are the rows and columns of the argument for the parameter `k`.

A task that lacks a name of a key has no key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.support.record import record

D = TypeVar("D", bound="Directive")
P = ParamSpec("P")


@record
class Key:
    """A key; the field `key` holds it."""

    field = "key"


@record
class Keys:
    """From one to `most` keys; the field `keys` holds them."""

    most: int

    field = "keys"


@record
class Count:
    """A number; the field `n` holds it. 0 leaves the number open, where `least` is 0."""

    least: int = 0
    most: int = 2**31 - 1

    field = "n"


@record
class Bounds:
    """Ascending numbers, one less than the parts that they make; the field `bounds` holds them."""

    most_parts: int

    field = "bounds"


@record
class Stage:
    """Kernels that share workers.

    Attributes:
        kernels: their names.
        cores: its share of the workers.
        loc: where the stage was written.
    """

    kernels: tuple[str, ...]
    cores: int
    loc: Location | None = None


@record
class Stages:
    """From `least` to `most` stages of distinct kernels; the field `stages` holds them."""

    least: int
    most: int

    field = "stages"


Parameter = Key | Keys | Count | Bounds | Stages
Settings = dict[str, "int | str | list[int]"]
"""Options of the engine by name; text is the name of a member of an enumeration."""


class Policy(Generic[P, D]):
    """One of the directives of a kind, declared at the method of the kind's class by which users make it.

    The method returns `self`, the directive without arguments, with the arguments of a user. Its docstring is
    the line of the directive on the page of policies and in notebooks.

    Attributes:
        name: the word after `=` in text: the name of the method.
        takes: its parameters, in the order of the text.
        effect: the test that proves its effect on recorded order or placement.
        settings: the options of the engine that enforce it, unless its kind says more.
        refused: the targets that refuse it, with their reasons.
    """

    def __init__(
        self, make: Callable[Concatenate[D, P], D], takes: tuple[Parameter, ...], effect: str
    ) -> None:
        self.name = make.__name__.removeprefix("_")
        self.takes = takes
        self.effect = effect
        self.settings: Settings = {}
        self.refused: Mapping[str, str] = {}
        self.__doc__ = make.__doc__
        self._make = make

    def __set_name__(self, owner: type[D], name: str) -> None:
        self._kind = owner

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> D:
        """Return the directive with the arguments of a user."""
        return self._make(self._kind(self.name), *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """What `help` and the reference show: the parameters of a user."""
        made = inspect.signature(self._make)
        return made.replace(parameters=list(made.parameters.values())[1:])

    @property
    def kind(self) -> str:
        """The word before `=` in text: what it decides."""
        return self._kind.kind

    @property
    def meaning(self) -> str:
        """What it does."""
        return " ".join((self.__doc__ or "").split("Args:")[0].split("Raises:")[0].split())


def policy(
    *takes: Parameter, effect: str, settings: Settings | None = None, refused: Mapping[str, str] | None = None
) -> Callable[[Callable[Concatenate[D, P], D]], Policy[P, D]]:
    """Return a decorator that declares a directive of a kind; its arguments are attributes of `Policy`."""

    def declared(make: Callable[Concatenate[D, P], D]) -> Policy[P, D]:
        found = Policy(make, takes, effect)
        found.settings, found.refused = settings or {}, refused or {}
        return found

    return declared


class Directive:
    """A directive of a schedule. Each kind is a record, whose class holds all that the project knows of it.

    Attributes:
        kind: what it decides: the word before `=` in text. A schedule has one directive of a kind.
        place: where the kind appears in a schedule: kinds are in ascending order.
        mark: the opcode by which a task carries its keys to the engine, or an empty text.
        policies: the directives of the kind by name; the first is the default.
        name: which of them it is.
    """

    kind: ClassVar[str]
    place: ClassVar[int]
    mark: ClassVar[str] = ""
    policies: ClassVar[Mapping[str, Policy[..., Any]]]
    name: str

    if TYPE_CHECKING:

        def __init__(self, name: str) -> None: ...

    def __init_subclass__(cls) -> None:
        found = [value for value in vars(cls).values() if isinstance(value, Policy)]
        cls.policies = {policy.name: policy for policy in found}

    @property
    def policy(self) -> Policy[..., Any]:
        """What it takes and does."""
        return self.policies[self.name]

    @property
    def title(self) -> str:
        """It without its arguments."""
        return f"{self.kind} = {self.name}"

    @classmethod
    def default(cls: type[D]) -> D:
        """Return what holds where a schedule does not mention the kind."""
        return cls(next(iter(cls.policies)))

    @property
    def key_exprs(self) -> tuple[Expr, ...]:
        """Its keys."""
        key = getattr(self, Key.field, None)
        return tuple(getattr(self, Keys.field, ())) if key is None else (key,)

    def engine_settings(self) -> Settings:
        """Return the options of the engine that enforce it."""
        return self.policy.settings

    def engine_keys(self, kernel: KernelFunction) -> tuple[Expr, ...]:
        """Return the keys that a task of `kernel` carries, over the names of keys."""
        return self.key_exprs

    def engine_operand(self, number: int) -> int:
        """Return what the mark of key number `number` states in addition to the key."""
        return number

    def refusal(self, entry: WorkloadFunction, written: frozenset[str]) -> str:
        """Return why an entry whose tasks write these tensors cannot have it; empty if it can."""
        return ""


@record
class Directives:
    """Directives in canonical order, without those that are the default.

    Attributes:
        directives: at most one of each kind, which `verify` checks.
    """

    directives: tuple[Directive, ...] = ()

    def __init__(self, directives: Iterable[Directive] = ()) -> None:
        chosen = (directive for directive in directives if directive != directive.default())
        self.__dict__["directives"] = tuple(sorted(chosen, key=lambda directive: directive.place))

    def __iter__(self) -> Iterator[Directive]:
        return iter(self.directives)

    def find(self, kind: type[D]) -> D | None:
        """Return the directive of a kind, or None if the schedule does not mention it."""
        return next((directive for directive in self.directives if isinstance(directive, kind)), None)

    def having(self, *directives: Directive) -> Directives:
        """Return the schedule with other directives of their kinds."""
        kinds = {directive.kind for directive in directives}
        return Directives((*(d for d in self.directives if d.kind not in kinds), *directives))


DEFAULT = Directives()
"""The schedule of a program that says nothing about it."""
