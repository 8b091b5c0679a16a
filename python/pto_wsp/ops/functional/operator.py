"""The list of operators: what each computes, and how far a result may be from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pto_wsp.ops.functional.documentation import default_shapes, described
from pto_wsp.ops.functional.elementwise_kernels import activations, activations_with_numbers, losses
from pto_wsp.ops.functional.family import Family
from pto_wsp.ops.functional.layer_kernels import gates, products, tables
from pto_wsp.ops.functional.row_kernels import norms, reductions, row_losses, softmaxes
from pto_wsp.support.record import record

ACTIVATIONS = Family("activations", activations)
NUMBERED = Family("activations_with_numbers", activations_with_numbers)
LOSSES = Family("losses", losses)
SOFTMAXES = Family("softmaxes", softmaxes)
NORMS = Family("norms", norms)
REDUCTIONS = Family("reductions", reductions)
ROW_LOSSES = Family("row_losses", row_losses)
GATES = Family("gates", gates)
PRODUCTS = Family("products", products)
TABLES = Family("tables", tables)

FAMILIES = (
    *(ACTIVATIONS, NUMBERED, GATES, SOFTMAXES, NORMS, REDUCTIONS, LOSSES, ROW_LOSSES, PRODUCTS, TABLES),
)
"""All of them; the workloads of one share a library of kernels."""


@record
class Operator:
    """An operator.

    Attributes:
        function: what users call.
        formula: what it computes, for the reference page.
        bound: of f32 results: |y - exact| <= bound * eps * max(|exact|, s), where s is 1, or the sum of the
            sizes of the terms where many are added; 0: exact.
    """

    function: Callable[..., Any]
    formula: str
    bound: float


OPERATORS: dict[str, Operator] = {}
"""By name."""

F = TypeVar("F", bound=Callable[..., Any])


def operator(formula: str, bound: float, shapes: str = "") -> Callable[[F], F]:
    """Add a function to the list of operators, and complete its docstring.

    Args:
        formula: as in `Operator`.
        bound: as in `Operator`.
        shapes: shapes of arrays and result; by default they follow from the parameters.
    """

    def add(function: F) -> F:
        function.__doc__ = described(function, formula, bound, shapes or default_shapes(function))
        OPERATORS[function.__name__] = Operator(function, formula, bound)
        return function

    return add
