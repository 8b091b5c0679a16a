"""The PTO instruction set."""

from pto_wsp.isa.forms import (
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
