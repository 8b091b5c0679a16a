"""Kernel functions: arithmetic on tiles, on one core.

A body works on named tiles and scalars that may be written more than once, as in `.pto` text; there is no
implicit copy. The valid shape of a tile is that of what was last written to it: elementwise results have the
valid shape of their operands, which must agree (checked at run time where it is not known before).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from pto_wsp.ir.core import Region
from pto_wsp.ir.scalar import Expr
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.types.tile import ScalarType, TileType, ViewType

IN, OUT, INOUT = "in", "out", "inout"


@record
class Param:
    """A parameter. `role` is `in`, `out` or `inout`; scalars are `in`.

    A parameter of TileType is a view of at most that shape, loaded and stored as a whole.
    """

    name: str
    role: str
    type: TileType | ViewType | ScalarType
    loc: Location | None = None


@record
class Load:
    """`tile` = the elements of `region`, whose kept extents become the tile's valid shape.

    With `rows`, an i32 tile of one row or one column, row i of the tile is row rows[i] of the region.
    """

    tile: str
    region: Region
    loc: Location | None = None
    rows: str | None = None


@record
class Store:
    """Elements of `region` = the valid part of `tile`, whose valid shape must be the region's.

    With `rows`, an i32 tile of one row or one column, row i of the tile goes to row rows[i] of the region (a
    scatter); of rows named twice the last stays.
    """

    region: Region
    tile: str
    loc: Location | None = None
    rows: str | None = None


@record
class Prefetch:
    """The elements of `region`, or with `rows` those rows of it, are read soon. It changes nothing.

    The region lies inside its view, as that of a load does.
    """

    region: Region
    loc: Location | None = None
    rows: str | None = None


Move = Load | Store | Prefetch

AttrValue = str | int | bool | Expr


@record
class Instr:
    """`dst` = the table row `op` of tile operands and scalar operands.

    `attrs` are those that `isa.attributes` gives the row's form.
    """

    op: str
    dst: str
    tiles: tuple[str, ...] = ()
    scalars: tuple[Expr, ...] = ()
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    loc: Location | None = None

    def attr(self, name: str) -> AttrValue | None:
        """Return the value of an attribute, or None."""
        return next((value for key, value in self.attrs if key == name), None)


@record
class Assign:
    """Scalar variable `name` = `value`."""

    name: str
    value: Expr
    loc: Location | None = None


@record
class For:
    """`for var in range(start, stop, step)`; the bounds are evaluated once; `step` is positive."""

    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    loc: Location | None = None


@record
class If:
    """Two-way choice by a bool expression."""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()
    loc: Location | None = None


@record
class While:
    """Repeat `body` while `condition`, a bool expression, holds."""

    condition: Expr
    body: tuple[Stmt, ...]
    loc: Location | None = None


@record
class KernelCall:
    """The statements of another kernel, at this place.

    The pass `inline` puts the body of the callee here; targets do not know calls.

    Attributes:
        kernel: name of a function of the module, which does not lead back to this one.
        args: per parameter of the callee, in order: the name of a parameter of this kernel, which is then
            the callee's view, or, for a scalar, an expression.
    """

    kernel: str
    args: tuple[str | Expr, ...]
    loc: Location | None = None


@record
class Words:
    """Words that a kernel prints."""

    text: str


@record
class Print:
    """Write `parts`, with spaces between them, as lines that name the task. It changes nothing.

    Attributes:
        parts: text, names of tiles, whose valid parts are written, and scalars.
    """

    parts: tuple[Words | str | Expr, ...]
    loc: Location | None = None

    @property
    def tiles(self) -> tuple[str, ...]:
        """The tiles that are written, in order."""
        return tuple(part for part in self.parts if isinstance(part, str))

    @property
    def scalars(self) -> tuple[Expr, ...]:
        """The scalars that are written, in order."""
        return tuple(part for part in self.parts if not isinstance(part, (Words, str)))


@record
class Assert:
    """End the kernel, and with it the run, with `message` unless `condition`, a bool expression, holds."""

    condition: Expr
    message: str
    loc: Location | None = None


Simple = Load | Store | Prefetch | Instr | Assign | Print | Assert
"""Statements without others inside them, other than calls."""

Stmt = Simple | For | If | While | KernelCall


@record
class Native:
    """The C++ of a kernel that is written by hand.

    Attributes:
        source: the text: the body of a function, or a translation unit.
        entry: name of the translation unit's function; empty where the text is a body.
        includes: what is included before the text: `<header>` or `"header"`.
        folder: where headers in quotes are looked for.
        constants: values of the kernel's constant parameters, which the text can name.
        order: names of all its parameters, constants among them, as they were declared.
        targets: the targets that it is written for; none means those that run kernels on a CPU.
        reference: its meaning in numpy: a function of all its parameters that writes outputs in place. Text
            cannot hold it, and it takes no part in equality.
    """

    apart = ("reference",)

    source: str
    entry: str = ""
    includes: tuple[str, ...] = ()
    folder: str = ""
    constants: tuple[tuple[str, object], ...] = ()
    order: tuple[str, ...] = ()
    reference: Callable[..., object] | None = None
    loc: Location | None = None
    targets: tuple[str, ...] = ()


HEADER = re.compile(r'<[^<>"\n]+>|"[^<>"\n]+"')
"""What can be included before the text of a kernel in C++."""

UNITS = ("any", "vector", "cube", "control", "mixed")
"""Kinds of cores, as the ABI numbers them."""


BLOCK_IDX = "block.idx"
"""The scalar that numbers the calls of one task: known in every kernel, i64."""


@record
class KernelFunction:
    """An InCore function.

    Attributes:
        tiles: every tile the body names, with its type, in order of declaration.
        scalars: every scalar variable the body assigns, with its type (loop variables are not listed).
        body: None for a declaration without a body, and for a kernel in C++.
        native: its C++, for a kernel that is written by hand.
        unit: the kind of core that it wants, one of UNITS.
        block_dim: calls that make one task.
        cost: what a user states of its cycles on a device: a function of all its parameters. Text cannot
            hold it, and it takes no part in equality.
    """

    apart = ("cost",)

    name: str
    params: tuple[Param, ...]
    tiles: tuple[tuple[str, TileType], ...] = ()
    scalars: tuple[tuple[str, ScalarType], ...] = ()
    body: tuple[Stmt, ...] | None = None
    loc: Location | None = None
    native: Native | None = None
    unit: str = "any"
    block_dim: int = 1
    cost: Callable[..., object] | None = None

    @property
    def views(self) -> tuple[Param, ...]:
        """Parameters that are tiles or tensor views, in order."""
        return tuple(p for p in self.params if not isinstance(p.type, ScalarType))

    @property
    def scalar_params(self) -> tuple[Param, ...]:
        """Parameters that are scalars, in order."""
        return tuple(p for p in self.params if isinstance(p.type, ScalarType))

    def param(self, name: str) -> Param:
        """Return the parameter called `name`."""
        return next(p for p in self.params if p.name == name)


Block = tuple[Stmt, ...]


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """Return the blocks inside a statement, in program order."""
    match stmt:
        case Instr() | Load() | Store() | Prefetch() | Assign() | Print() | Assert() | KernelCall():
            return ()
        case For(body=body) | While(body=body):
            return (body,)
        case If(then=then, other=other):
            return then, other
        case _:
            assert_never(stmt)


def rebuild(stmt: Stmt, change: Callable[[Block], Iterable[Stmt]]) -> Stmt:
    """Return a statement with each of the blocks inside it changed."""
    match stmt:
        case Instr() | Load() | Store() | Prefetch() | Assign() | Print() | Assert() | KernelCall():
            return stmt
        case For(body=body) | While(body=body):
            return replace(stmt, body=tuple(change(body)))
        case If(then=then, other=other):
            return replace(stmt, then=tuple(change(then)), other=tuple(change(other)))
        case _:
            assert_never(stmt)


def statement_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself, without those of the statements inside it."""
    match stmt:
        case Load(region=region) | Store(region=region) | Prefetch(region=region):
            return region.expressions
        case Instr(scalars=scalars, attrs=attrs):
            return (*scalars, *(value for _, value in attrs if not isinstance(value, (str, int))))
        case Assign(value=value):
            return (value,)
        case For(start=start, stop=stop):
            return start, stop
        case Print(scalars=scalars):
            return scalars
        case Assert(condition=condition):
            return (condition,)
        case If(condition=condition) | While(condition=condition):
            return (condition,)
        case KernelCall(args=args):
            return tuple(arg for arg in args if not isinstance(arg, str))
        case _:
            assert_never(stmt)


def map_expressions(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """Return a statement with each of its own expressions changed."""
    match stmt:
        case Load(region=region) | Store(region=region) | Prefetch(region=region):
            return replace(stmt, region=region.mapped(change))
        case Instr(scalars=scalars, attrs=attrs):
            given = ((key, v if isinstance(v, (str, int)) else change(v)) for key, v in attrs)
            return replace(stmt, scalars=tuple(map(change, scalars)), attrs=tuple(given))
        case Assign(value=value):
            return replace(stmt, value=change(value))
        case For(start=start, stop=stop):
            return replace(stmt, start=change(start), stop=change(stop))
        case If(condition=condition) | While(condition=condition) | Assert(condition=condition):
            return replace(stmt, condition=change(condition))
        case Print(parts=parts):
            return replace(stmt, parts=tuple(p if isinstance(p, (Words, str)) else change(p) for p in parts))
        case KernelCall(args=args):
            return replace(stmt, args=tuple(a if isinstance(a, str) else change(a) for a in args))
        case _:
            assert_never(stmt)


def walk_statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Yield every statement of `body` and of the blocks inside it, in program order."""
    for stmt in body:
        yield stmt
        for block in blocks(stmt):
            yield from walk_statements(block)
