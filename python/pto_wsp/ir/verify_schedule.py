"""The rules of a schedule that hold for every program."""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

from pto_wsp.ir.rules import require, require_distinct
from pto_wsp.ir.scalar import (
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    FlushValue,
    KernelNumber,
    LoopExtent,
    LoopStart,
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
    format_expr,
    walk,
)
from pto_wsp.ir.schedule import Bounds, Count, Directives, Key, Keys, Stages
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
                case Keys(most=most):
                    is_sound = 0 < len(value) <= most and all(isinstance(key, Expr) for key in value)
                    require(is_sound, f"`{directive.name}` takes 1 to {most} keys", None)
                    for key in value:
                        _key(key)
                case Count(least=least, most=most):
                    is_number = isinstance(value, int) and not isinstance(value, bool)
                    is_sound = is_number and least <= value <= most
                    require(is_sound, f"`{directive.name}` cannot have n = {value}", None)
                case Stages(least=least, most=most):
                    kernels = [kernel for stage in value for kernel in stage.kernels]
                    is_sound = least <= len(value) <= most and all(s.kernels and s.cores > 0 for s in value)
                    require(is_sound, f"`{directive.name}` takes {least} to {most} stages", None)
                    require_distinct(kernels, None, "kernel `{}` is in two stages")
                case Bounds(most_parts=most):
                    is_sound = 0 < len(value) < most and all(a < b for a, b in pairwise((-1, *value)))
                    require(is_sound, f"`{directive.name}` cannot have bounds {list(value)}", None)


def _key(key: Expr) -> None:
    require(key.dtype in (i64, b1), "a key is not an integer", key.loc)
    for part in walk(key):
        match part:
            case TaskIndex() | TaskKernel() | KernelNumber():
                pass
            case ArgExtent(param=param, dim=dim):
                require(dim in (0, 1), f"`{param}` has rows and columns, not a dimension {dim}", key.loc)
            case Const(dtype=dtype):
                require(dtype in (i64, b1), "a key has a number that is not an integer", key.loc)
            case Element(name=name) | TileElement(name=name):
                require(False, f"a key reads elements of `{name}`", key.loc)
            case Unary() | Binary() | Select():
                pass
            case Var() | Extent() | LoopStart() | LoopExtent() | Slot() | FlushValue():
                require(False, f"`{format_expr(part)}` is not a name of a key", key.loc)
            case _:
                assert_never(part)
