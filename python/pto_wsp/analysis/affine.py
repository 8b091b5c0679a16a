"""Integer expressions as sums of terms."""

from __future__ import annotations

from pto_wsp.ir.scalar import Binary, Const, Expr, Unary, Var, walk
from pto_wsp.support.record import record


@record
class Sum:
    """`constant` plus each term times its factor. Terms are variables, or other expressions except sums."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def factor(self, var: str) -> int | None:
        """Return the factor of a variable, or None where another term depends on it."""
        others = (term for term, _ in self.terms if not isinstance(term, Var))
        if any(mentions(term, var) for term in others):
            return None
        return next((f for term, f in self.terms if isinstance(term, Var) and term.name == var), 0)

    def without(self, var: str) -> Sum:
        """Return the sum without the term of a variable."""
        kept = tuple((t, f) for t, f in self.terms if not (isinstance(t, Var) and t.name == var))
        return Sum(kept, self.constant)


def mentions(expr: Expr, var: str) -> bool:
    """Return whether a variable occurs in an expression."""
    return any(isinstance(part, Var) and part.name == var for part in walk(expr))


def linear(expr: Expr) -> Sum:
    """Return an i64 expression as a sum. Where it has a value, the sum has that value."""
    terms: dict[Expr, int] = {}
    constant = _collect(expr, 1, terms)
    kept = ((term, factor) for term, factor in terms.items() if factor)
    return Sum(tuple(sorted(kept, key=repr)), constant)


def difference(a: Expr, b: Expr) -> int | None:
    """Return `a - b` if it does not depend on variables, else None."""
    found = linear(Binary("sub", a, b))
    return None if found.terms else found.constant


def _collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Add `factor` times the terms of `expr` to `terms`; return its constant."""
    match expr:
        case Const(value=value):
            return factor * int(value)
        case Binary(op="add", a=a, b=b):
            return _collect(a, factor, terms) + _collect(b, factor, terms)
        case Binary(op="sub", a=a, b=b):
            return _collect(a, factor, terms) + _collect(b, -factor, terms)
        case (
            Binary(op="mul", a=Const(value=value), b=other) | Binary(op="mul", a=other, b=Const(value=value))
        ):
            return _collect(other, factor * int(value), terms)
        case Unary(op="neg", a=a):
            return _collect(a, -factor, terms)
        case _:
            terms[expr] = terms.get(expr, 0) + factor
            return 0
