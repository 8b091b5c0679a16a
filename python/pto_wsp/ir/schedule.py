"""Schedules: how the tasks of a program run. A schedule is data, and replacing it never changes a result.

A schedule is a list of directives, at most one of each kind. A kind that is absent has its default. In `.pto`
text the schedule follows the functions of a module:

    schedule  = "SCHEDULE" "{" newline { line } "}"
    line      = kind "=" name [ "(" argument { "," argument } ")" ] newline
    argument  = key | "n" "=" integer | "at" "=" "[" integer { "," integer } "]"

    SCHEDULE {
      dispatch = affinity(%t.b, n = 4)
      window = stall(n = 8192)
      ready = priority(dim(%t.args.k, 0))
    }

A key is a scalar expression over a task `t`, with these names:

- `t.b` is the index of the loop around the task whose variable is `b`, or that runs over the axis `b`;
- `t.kernel` is the number of the task's kernel in the module, `kernel.attend` that of the kernel `attend`;
- `dim(t.args.k, 0)` and `dim(t.args.k, 1)` are the rows and columns of the argument for the parameter `k`.

A task that lacks a name of a key has no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pto_wsp.ir.scalar import Expr
from pto_wsp.support.record import record

if TYPE_CHECKING:
    from pto_wsp.ir.kernel import KernelFunction
    from pto_wsp.ir.module import Module

D = TypeVar("D", bound="Directive")

TASK, ARGUMENTS, KERNEL = "t.", "t.args.", "t.kernel"
"""What names of keys begin with, and the one of a task's kernel."""

KERNEL_NUMBER = "kernel."
"""What the name of the number of a kernel begins with."""


@record
class Key:
    """A key; the field `key` holds it."""

    field = "key"


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


Parameter = Key | Count | Bounds


@record
class Enforced:
    """The target does what the directive says."""


@record
class Idle:
    """The target accepts the directive, which has nothing to decide there."""


@record
class Refused:
    """The target refuses the directive by name."""

    reason: str


Support = Enforced | Idle | Refused

Settings = Mapping[str, "int | str | list[int]"]
"""Options of the engine by name; text is the name of a member of an enumeration."""


class Directive:
    """A directive of a schedule. Each subclass is a record, and holds all that the project knows of it.

    Its docstring is its line on the page of policies.

    Attributes:
        kind: what it decides: the word before `=` in text. A schedule has one directive of a kind.
        place: where the kind appears in a schedule: kinds are in ascending order.
        name: which directive of its kind it is: the word after `=` in text.
        is_initial: whether the kind's default is this directive, with the defaults of its fields.
        parameters: its fields, in the order of the text.
        is_walked: whether it decides about the walk of a program, which the replay of a kept graph omits.
        settings: the options of the engine that enforce it.
        mark: the opcode by which a task carries its key to the engine, or an empty text.
        support: targets that do not treat it as they treat most directives, and what they make of it.
        effect: the test that proves its effect on recorded order or placement.
    """

    kind: ClassVar[str]
    place: ClassVar[int]
    name: ClassVar[str]
    is_initial: ClassVar[bool] = False
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    is_walked: ClassVar[bool] = False
    settings: ClassVar[Settings] = {}
    mark: ClassVar[str] = ""
    support: ClassVar[tuple[tuple[str, Support], ...]] = ()
    effect: ClassVar[str]

    @classmethod
    def meaning(cls) -> str:
        """Return what it does, as the page of policies and notebooks say it."""
        return " ".join((cls.__doc__ or "").split("Attributes:")[0].split())

    @classmethod
    def of_kind(cls) -> type[Directive]:
        """Return the class of all directives of its kind."""
        return next(base for base in cls.__mro__ if "kind" in vars(base))

    @property
    def is_default(self) -> bool:
        """Whether a schedule without it says the same."""
        return self.is_initial and self == type(self)()

    @property
    def key_expr(self) -> Expr | None:
        """Its key, or None if it has none."""
        return getattr(self, Key.field, None)

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the options of the engine that enforce it in `schedule`."""
        return self.settings

    def engine_key(self, kernel: KernelFunction) -> Expr | None:
        """Return the key that a task of `kernel` carries, over the names of keys, or None."""
        return self.key_expr

    def engine_limit(self) -> int:
        """Return the number that all keys have to be below, or 0."""
        return 0

    def refusal(self, module: Module) -> str:
        """Return why it cannot be used for this module, whatever the target; empty if it can."""
        return ""


@record
class Schedule:
    """Directives in canonical order, without those that say what the default says.

    Attributes:
        directives: at most one of each kind, which `verify` checks.
    """

    directives: tuple[Directive, ...] = ()

    def __init__(self, directives: Iterable[Directive] = ()) -> None:
        chosen = (directive for directive in directives if not directive.is_default)
        self.__dict__["directives"] = tuple(sorted(chosen, key=lambda directive: directive.place))

    def __iter__(self) -> Iterator[Directive]:
        return iter(self.directives)

    def find(self, kind: type[D]) -> D | None:
        """Return the directive of a class, or of a kind's class; None if the schedule does not mention it."""
        return next((directive for directive in self.directives if isinstance(directive, kind)), None)

    @property
    def is_walked(self) -> bool:
        """Whether some directive decides about the walk of the program."""
        return any(directive.is_walked for directive in self.directives)

    def having(self, *directives: Directive) -> Schedule:
        """Return the schedule with other directives of their kinds."""
        kinds = {directive.kind for directive in directives}
        return Schedule((*(d for d in self.directives if d.kind not in kinds), *directives))


DEFAULT = Schedule()
"""The schedule of a program that says nothing about it."""
