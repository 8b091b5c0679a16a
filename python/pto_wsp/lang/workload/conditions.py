"""`P.when` and `P.otherwise`: conditionals of a workload."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from pto_wsp.errors import BadOperand, DetachedOtherwise, UnsupportedSyntax
from pto_wsp.ir.scalar import Const, Expr, format_expr
from pto_wsp.lang.operands import Number, expression
from pto_wsp.lang.source import leaving_statements, with_statement
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.blocks import Blocks, Chain, OpenBlock, left_early
from pto_wsp.lang.workload.python_variables import require_one_value
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import b1


class Branch:
    """What `with` takes in a workload: its body describes what happens if the predicate holds."""

    def __init__(self, what: str, predicate: Expr | bool | None, loc: Location | None) -> None:
        self._what = what
        self._predicate = predicate
        self._loc = loc
        self._chain: Chain | None = None
        self._block: OpenBlock | None = None

    def __enter__(self) -> None:
        blocks = context.current(f"`{self._what}`").blocks
        if self._what == "P.when":
            self._chain = Chain(self._loc, blocks.innermost.nodes)
        else:
            self._chain = _open_chain(blocks.innermost, self._loc)
        self._chain.is_complete = self._predicate is None
        body = self._chain.alternative(self._predicate is None or self._predicate, self._loc)
        self._block = blocks.enter(body, f"`{self._what}`", self._loc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            return  # the block stays open, so the recording ends with an error if this error is caught
        blocks: Blocks = context.current(f"`{self._what}`").blocks
        assert self._block is not None and self._chain is not None
        blocks.leave(self._block)
        blocks.innermost.chain = self._chain


def when(predicate: Number) -> Branch:
    """Begin a conditional: `with P.when(predicate):`."""
    return _branch("P.when", predicate)


def otherwise(predicate: Number | None = None) -> Branch:
    """Continue the conditional just before: else-if with a predicate, else without."""
    return _branch("P.otherwise", predicate)


def _branch(what: str, value: object) -> Branch:
    context.current(f"`{what}`")
    loc = caller_location()
    predicate = None if value is None and what == "P.otherwise" else predicate_of(what, value, loc)
    statement = None if loc is None else with_statement(loc)
    if loc is None or statement is None:
        raise UnsupportedSyntax(
            construct=f"`{what}` that no `with` statement in a file or notebook cell opens",
            where="workload",
            detail="its body cannot be seen",
            advice=f"write `with {what}(...):`",
            loc=loc,
        )
    for keyword, place in leaving_statements(loc.file, statement):
        raise left_early(f"`{what}`", f"`{keyword}`", place)
    require_one_value(loc.file, statement)
    return Branch(what, predicate, loc)


def predicate_of(what: str, value: object, loc: Location | None) -> Expr | bool:
    """Return a predicate, as a Python bool where it is known while the workload is built.

    Raises:
        BadOperand: no truth value.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    expr = expression(value)
    if expr is None or expr.dtype is not b1:
        found = type(value).__name__ if expr is None else f"`{format_expr(expr)}`, {expr.dtype}"
        advice = "a comparison" if expr is None else f"a comparison, such as `{format_expr(expr)} != 0`"
        raise BadOperand(op=what, expected=advice, found=found, loc=loc)
    return bool(expr.value) if isinstance(expr, Const) else expr


def _open_chain(block: OpenBlock, loc: Location | None) -> Chain:
    """Return the conditional that an alternative at `loc` continues.

    Raises:
        DetachedOtherwise: there is none just before.
    """
    chain = block.chain
    if chain is None:
        found, between = block.ended or (None, None)
        notes = [("the `P.when` before it", found.loc if found else None)]
        notes.append(("this is between them", between))
        problem = (
            "another statement is between them" if found else "there is no `P.when` before it in this block"
        )
        raise DetachedOtherwise(problem=problem, loc=loc, notes=notes)
    if chain.is_complete:
        raise DetachedOtherwise(
            problem="the conditional has its `P.otherwise()` already",
            loc=loc,
            notes=[("its `P.when`", chain.loc)],
        )
    return chain
