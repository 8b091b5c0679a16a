"""Modules of functions that builders make."""

from __future__ import annotations

import pytest

from pto_wsp import PtoError, PTOFunctionBuilder, PTOModule, parse
from tests.python.builder.softmax import softmax_module


def test_functions_by_name() -> None:
    module = softmax_module()
    names = ("rowmax", "rowexpandsub", "elem_exp", "rowsum", "rowexpanddiv", "dynamic_softmax")
    assert module.get_function_names() == names
    assert [f.name for f in module.get_all_functions()] == list(names)
    assert [*module.functions.items()] == [(f.name, f) for f in module.get_all_functions()]
    assert module.has_function("rowsum") and not module.has_function("sum")
    with pytest.raises(PtoError, match="did you mean `rowsum`"):
        module.get_function("rowsums")
    with pytest.raises(PtoError, match="unknown-kernel"):
        module.compile("interp", entry="softmax")


def test_the_first_function_is_the_entry() -> None:
    module = softmax_module()
    assert module.ir.entry == "rowmax"
    module.set_entry("dynamic_softmax")
    assert module.ir.entry == "dynamic_softmax"
    assert "// Entry: @dynamic_softmax" in str(module)


def test_modules_are_equal_by_what_they_say() -> None:
    assert softmax_module() == softmax_module()
    assert parse(str(softmax_module())) == softmax_module() == softmax_module().ir
    other = softmax_module()
    other.set_entry("rowsum")
    assert other != softmax_module()
    assert softmax_module() != "softmax"


def test_imported_functions_can_be_called() -> None:
    module = PTOModule("other")
    module.import_function(softmax_module().get_function("rowmax"))
    assert module.ir.entry == ""
    builder = PTOFunctionBuilder("f", module).not_in_core().import_func("rowmax").memref("x").memref("y")
    builder.call("rowmax", {"input": "x", "output": "y"}).build()
    assert module.ir.entry == "f"


def test_a_builder_takes_a_module() -> None:
    with pytest.raises(PtoError, match="expected a `PTOModule` as the module, found `'m'`"):
        PTOFunctionBuilder("f", "m")  # pyright: ignore[reportArgumentType]


def test_a_program_needs_an_entry() -> None:
    module = PTOModule("other")
    with pytest.raises(PtoError, match="the module has no entry, which one of its functions is: none"):
        module.compile("interp")
    module.import_function(softmax_module().get_function("rowmax"))
    with pytest.raises(PtoError, match="which one of its functions is: `rowmax`"):
        module.compile("interp")


def test_two_functions_have_two_names() -> None:
    module = softmax_module()
    module.add_function(softmax_module().get_function("rowmax"))
    with pytest.raises(PtoError, match="two different functions are called `rowmax`"):
        PTOFunctionBuilder("rowmax", module).memref("x").tile("t", 8, 8).load("t", "x").build()
    with pytest.raises(PtoError, match=r"what `.build\(\)` returns"):
        module.add_function("rowmax")  # pyright: ignore[reportArgumentType]


def test_what_the_tiles_of_a_function_take() -> None:
    module = softmax_module()
    assert module.get_buffer_size("rowmax") == (320, 320)
    assert module.get_buffer_size("elem_exp") == (512, 256)
    assert module.get_buffer_analysis("elem_exp").peak == (("x", 256),)
    with pytest.raises(PtoError, match="wrong-function-kind"):
        module.get_buffer_size("dynamic_softmax")
