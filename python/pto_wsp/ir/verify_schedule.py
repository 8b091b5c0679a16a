"""The rules that a schedule obeys by itself, whatever program it is given to."""

from __future__ import annotations

from typing import assert_never

from pto_wsp.ir.rules import require
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
from pto_wsp.ir.schedule import ARGUMENTS, KERNEL_NUMBER, POLICIES, TASK, Policy, Schedule
from pto_wsp.types.dtype import b1, i64


def verify_schedule(schedule: Schedule) -> None:
    """Raise InvalidIR at the first policy that breaks a rule."""
    for directive, policy in zip(POLICIES, schedule.policies(), strict=True):
        _policy(directive, policy)


def _policy(directive: str, policy: Policy) -> None:
    known = policy.directive == directive and policy.name in POLICIES[directive]
    require(known, f"`{policy.name}` is no policy for `{directive}`", None)
    form = policy.form
    has_key = policy.key is not None
    require(
        has_key == form.takes_key, f"`{policy.name}` {'lacks a' if form.takes_key else 'takes no'} key", None
    )
    is_count = policy.count == 0 if form.least is None else form.least <= policy.count <= form.most
    require(is_count, f"`{policy.name}` cannot have n = {policy.count}", None)
    if policy.key is not None:
        _key(policy.key)
    _bounds(policy)


def _bounds(policy: Policy) -> None:
    bounds = policy.bounds
    are_due = 0 < len(bounds) < policy.form.most_parts if policy.form.takes_bounds else not bounds
    is_ascending = all(a < b for a, b in zip((-1, *bounds), bounds, strict=False))
    require(are_due and is_ascending, f"`{policy.name}` cannot have bounds {list(bounds)}", None)


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
