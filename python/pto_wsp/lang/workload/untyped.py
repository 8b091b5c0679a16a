"""Workload parameters without an annotation."""

from __future__ import annotations

from pto_wsp.errors import BadAnnotation
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.tensor import Subscript, Tensor, View
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, i64

AXIS, SCALAR, TENSOR = "an axis", "a scalar", "a tensor"


class Untyped(Scalar):
    """A workload parameter without an annotation: an axis, a scalar or a tensor, as its uses decide.

    Attributes:
        kind: AXIS, SCALAR or TENSOR, or None as long as nothing uses it.
        dtype: element type of a scalar or tensor, None while unknown.
        rank: dimensions of a tensor, None while unknown.
    """

    __slots__ = ("dtype", "kind", "loc", "name", "rank", "workload")

    def __init__(self, name: str, workload: str, loc: Location | None) -> None:
        self.name = name
        self.workload = workload
        self.loc = loc
        self.kind: str | None = None
        self.dtype: DType | None = None
        self.rank: int | None = None

    def __repr__(self) -> str:
        return f"<parameter {self.name}>"

    @property
    def expr(self) -> Expr:
        """The parameter as a number: an axis unless it is a scalar already."""
        self.use(SCALAR if self.kind == SCALAR else AXIS)
        return Var(self.name, self.dtype or i64)

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> Tensor:
        self.use(TENSOR)
        return View(self, self.name).narrowed(index)

    def use(self, kind: str) -> None:
        """Note a use.

        Raises:
            BadAnnotation: an earlier use was of another kind.
        """
        if self.kind not in (None, kind):
            raise self.undecided("one kind of use", f"{self.kind} and {kind}")
        self.kind = kind

    def decide_rank(self, rank: int) -> None:
        """Note a use as a tensor of `rank` dimensions.

        Raises:
            BadAnnotation: an earlier use was of another rank.
        """
        if self.rank not in (None, rank):
            raise self.undecided("one number of dimensions", f"{self.rank} and {rank}")
        self.rank = rank

    def undecided(self, expected: str, found: str) -> BadAnnotation:
        """Return the error that this parameter needs an annotation."""
        return BadAnnotation(
            param=self.name,
            function=self.workload,
            expected=expected,
            found=found,
            loc=self.loc,
            hint="annotate it: `Tensor[dtype, dims...]`, `Scalar[dtype]` or `DenseDyn`",
        )
