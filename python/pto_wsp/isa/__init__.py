"""The PTO instruction set."""

from pto_wsp.isa.forms import (
    ADDS_ONTO,
    ELEMENTWISE,
    IN_PLACE,
    PRODUCTS,
    Form,
    FormError,
    data_operands,
    factors,
    result_type,
    result_valid,
    valid_pairs_that_agree,
)
from pto_wsp.isa.table import BY_FUNCTION, BY_MNEMONIC, TABLE, ErrorBound, Instruction

__all__ = [
    "ADDS_ONTO",
    "BY_FUNCTION",
    "BY_MNEMONIC",
    "ELEMENTWISE",
    "IN_PLACE",
    "PRODUCTS",
    "TABLE",
    "ErrorBound",
    "Form",
    "FormError",
    "Instruction",
    "data_operands",
    "factors",
    "result_type",
    "result_valid",
    "valid_pairs_that_agree",
]
