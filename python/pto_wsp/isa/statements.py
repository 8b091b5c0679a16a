"""Scalar and control instructions: the statements of functions that are not rows of the table.

They are statements of the IR, not operations on tiles: how `.pto` text and function builders say them.
"""

from __future__ import annotations

from pto_wsp.support.record import record


@record
class Statement:
    """A scalar or control instruction: the method of a function builder, empty where it needs none."""

    method: str
    doc: str


SCALARS: dict[str, Statement] = {
    "LI": Statement("scalar_li", "Assign a number."),
    "MOV": Statement("scalar_mov", "Assign a scalar or an expression."),
    "ADD": Statement("scalar_add", "Assign a + b; beyond 64 bits is an error."),
    "SUB": Statement("scalar_sub", "Assign a - b; beyond 64 bits is an error."),
    "MUL": Statement("scalar_mul", "Assign a * b; beyond 64 bits is an error."),
    "DIV": Statement("scalar_div", "Assign a / b, of integers toward zero; by zero is an error."),
    "CMP": Statement("scalar_cmp", "Assign whether a and b compare so: EQ, NE, LT, LE, GT, GE."),
    "LOAD": Statement("scalar_load", "Assign an element of a memref of integers; outside is an error."),
    "STORE": Statement("scalar_store", "Write a scalar to an element of a memref; outside is an error."),
    "getval": Statement("getval", "Assign an element of a tile; outside of its valid part is an error."),
}
"""Instructions on scalars, by their words in text: integers of 64 bits, f32 and truth values."""

CONTROL: dict[str, Statement] = {
    "FOR": Statement("for_loop", "Count from a first value to an end, in steps."),
    "ENDFOR": Statement("end_for", "End that loop."),
    "WHILE": Statement("while_loop", "Repeat while a condition holds; in InCore functions."),
    "DO": Statement("", "End what is computed before each test of that condition."),
    "ENDWHILE": Statement("end_while", "End that loop."),
    "BREAK": Statement("break_loop", "End the innermost loop."),
    "CONTINUE": Statement("continue_loop", "End this iteration of the innermost loop."),
    "IF": Statement("if_then", "Do what follows where a condition holds."),
    "IF_BIT": Statement("if_bit", "Do what follows where a bit of an integer is set."),
    "ELSE": Statement("else_block", "Do what follows where it does not hold."),
    "YIELD": Statement("", "Assign what a block gives: `IF (%x), %c, ()`."),
    "ENDIF": Statement("endif", "End that choice."),
    "CALL": Statement(
        "call", "Do what another function says; from an Orchestration, an InCore function is a task."
    ),
    "RETURN": Statement("ret", "End the function."),
}
"""Instructions of control, by their words in text."""

DEBUGGING: dict[str, Statement] = {
    "PRINT": Statement("print", "Print text, scalars and tiles, with the task; in InCore functions."),
    "CHECK": Statement("check", "End the run with a message unless a condition holds; in InCore functions."),
}
"""Statements of InCore functions that help to find mistakes."""
