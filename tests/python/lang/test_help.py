"""`help(pto.exp)` says what a function of kernels does."""

from __future__ import annotations

import pydoc

import pytest

from pto_wsp import pto
from pto_wsp.isa import BY_FUNCTION
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.lang.kernel.help import SHAPES


def shown(name: str) -> str:
    return pydoc.plain(pydoc.render_doc(getattr(pto, name)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_has_a_signature_shapes_and_an_example_that_calls_the_function(name: str) -> None:
    text = shown(name)
    assert f"{name}({', '.join(FUNCTIONS[name].required)}" in text
    assert "Shapes: " in text and "Example: `" in text and f"pto.{name}(" in text
    if name in BY_FUNCTION:
        row = BY_FUNCTION[name]
        assert row.doc in " ".join(text.split()) and all(str(dtype) in text for dtype in row.dtypes)


def test_each_form_with_a_function_has_shapes() -> None:
    assert set(SHAPES) == {row.form for row in BY_FUNCTION.values()}


def test_help_of_products() -> None:
    text = shown("matmul")
    assert "matmul(a, b, acc=None)" in text and "[M, K], [K, N] -> [M, N] of f32" in text
    assert "(n / 8 + 4) eps sum |terms|" in text
