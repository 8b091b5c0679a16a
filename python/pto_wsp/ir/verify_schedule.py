"""The rules that a schedule obeys by itself, whatever program it is given to."""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

from pto_wsp.ir.rules import require, require_distinct
from pto_wsp.ir.scalar import (
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    FlushValue,
    LoopExtent,
    LoopStart,
    Select,
    Slot,
    TileElement,
    Unary,
    Var,
    format_expr,
    walk,
)
from pto_wsp.ir.schedule import ARGUMENTS, KERNEL_NUMBER, TASK, Bounds, Count, Directives, Key
from pto_wsp.types.dtype import b1, i64


def verify_schedule(schedule: Directives) -> None:
    """Raise InvalidIR at the first directive that breaks a rule."""
    require_distinct([d.kind for d in schedule], None, "the schedule says `{}` twice")
    for directive in schedule:
        is_known = directive.name in directive.policies
        require(is_known, f"`{directive.name}` is not a policy for `{directive.kind}`", None)
        taken = {"name", *(parameter.field for parameter in directive.policy.takes)}
        for name, value in vars(directive).items():
            require(name in taken or not value, f"`{directive.name}` takes no {name}", None)
        for parameter in directive.policy.takes:
            value = getattr(directive, parameter.field)
            match parameter:
                case Key():
                    require(isinstance(value, Expr), f"`{directive.name}` lacks a key", None)
                    _key(value)
                case Count(least=least, most=most):
                    is_number = isinstance(value, int) and not isinstance(value, bool)
                    is_sound = is_number and least <= value <= most
                    require(is_sound, f"`{directive.name}` cannot have n = {value}", None)
                case Bounds(most_parts=most):
                    is_sound = 0 < len(value) < most and all(a < b for a, b in pairwise((-1, *value)))
                    require(is_sound, f"`{directive.name}` cannot have bounds {list(value)}", None)


def _key(key: Expr) -> None:
    require(key.dtype in (i64, b1), "a key is no integer", key.loc)
    for part in walk(key):
        match part:
            case Var(name=name):
                require(name.startswith((TASK, KERNEL_NUMBER)), f"`{name}` is no name of a key", key.loc)
            case Extent(name=name, dim=dim):
                is_known = name.startswith(ARGUMENTS) and dim in (0, 1)
                require(is_known, f"dim({name}, {dim}) is no extent of a key", key.loc)
            case Const(dtype=dtype):
                require(dtype in (i64, b1), "a key has a number that is no integer", key.loc)
            case Element(name=name) | TileElement(name=name):
                require(False, f"a key reads elements of `{name}`", key.loc)
            case Unary() | Binary() | Select():
                pass
            case LoopStart() | LoopExtent() | Slot() | FlushValue():
                require(False, f"`{format_expr(part)}` is no name of a key", key.loc)
            case _:
                assert_never(part)
