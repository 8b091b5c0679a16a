"""Keys of tasks: the function of a policy runs once, with a placeholder for any task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.errors import BadKey, PtoError, RunTimeCondition, UnknownName, WrongValue, did_you_mean
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.scalar import Expr
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.operands import Scalar, expression, kind_of
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import b1, i64

KeyFunction = Callable[["AnyTask"], Any]

_EXTENTS = ("rows", "cols")


class AnyTask:
    """A task, while a key is made: `t.b` is a loop's index, `t.kernel` its kernel, `t.args` its arguments."""

    @property
    def args(self) -> _Arguments:
        """The arguments, by parameter of the kernel."""
        return _Arguments()

    @property
    def kernel(self) -> KernelOfTask:
        """The kernel, to be compared with one, or as its number in the module."""
        return KernelOfTask(ir.TaskKernel(caller_location()))

    def __getattr__(self, name: str) -> Scalar:
        if name.startswith("_"):
            raise AttributeError(name)
        return Scalar(ir.TaskIndex(name, caller_location()))


class KernelOfTask(Scalar):
    """The number of a task's kernel; it may be compared with a kernel, or the name of one."""

    __slots__ = ()
    __hash__ = Scalar.__hash__

    def __eq__(self, other: object) -> Any:
        return super().__eq__(_numbered(other))  # pyright: ignore[reportArgumentType]

    def __ne__(self, other: object) -> Any:
        return super().__ne__(_numbered(other))  # pyright: ignore[reportArgumentType]


def _numbered(value: object) -> object:
    name = value.name if isinstance(value, Kernel) else value
    return Scalar(ir.KernelNumber(name, caller_location())) if isinstance(name, str) else value


class _Arguments:
    def __getattr__(self, name: str) -> _Argument:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Argument(name)


class _Argument:
    """An argument of a task. It has `rows` and `cols`, the extents of what it selects."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Scalar:
        if name.startswith("__"):
            raise AttributeError(name)
        loc = caller_location()
        if name not in _EXTENTS:
            shown = f"t.args.{self._name}.{name}"
            raise UnknownName(name=shown, where="keys", advice=did_you_mean(name, _EXTENTS), loc=loc)
        return Scalar(ir.ArgExtent(self._name, _EXTENTS.index(name), loc))


def trace_key(owner: str, key: KeyFunction | None) -> Expr:
    """Return the key that a function gives for a task.

    Args:
        owner: what takes the key, for messages.
        key: a function of one task.

    Raises:
        WrongValue: no function of one argument.
        BadKey: it gives something else than an integer or a truth value.
        FrontendError: it decides by a value that only a run knows.
    """
    loc = caller_location()
    if not callable(key):
        raise WrongValue(
            name=owner, expected="a function of a task: `lambda t: t.b`", found=repr(key), loc=loc
        )
    try:
        value = key(AnyTask())
    except RunTimeCondition as error:
        hint = "a key has no branches: choose a value with `condition.where(a, b)`"
        raise RunTimeCondition(expr=error.fields["expr"], loc=error.loc, hint=hint) from None
    except PtoError:
        raise
    except TypeError as error:
        raise _unusable(f"the function of `{owner}` failed", str(error), loc) from error
    found = expression(value)
    if found is None or found.dtype not in (i64, b1):
        kind = str(found.dtype) if found is not None else kind_of(value)
        raise _unusable(f"the key of `{owner}` is not an integer", f"expected an integer, found {kind}", loc)
    return found


def _unusable(problem: str, detail: str, loc: Location | None) -> BadKey:
    return BadKey(problem=problem, detail=detail, advice="", loc=loc)
