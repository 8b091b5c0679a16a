"""Text that can be read and means nothing is refused at its line."""

from __future__ import annotations

import pytest

from pto_wsp import parse
from pto_wsp.errors import BadText, InvalidIR, OutNotStored, OutRead, PtoError

TILE = "!pto.memref<gm,8x8,f32>"
KERNEL = f"""\
func @f(%x: {TILE} {{{{in, tile}}}}, %y: {TILE} {{{{out, tile}}}}, %n: i64, %h: f32) {{{{
  %a = alloc_tile : !pto.tile<8x8xf32>
  %b = alloc_tile : !pto.tile<8x8xf32>
  %s = alloc_scalar : i64
  %a = tload %x[:, :] : !pto.tile<8x8xf32>
  {{}}
  tstore %a, %y[:, :]
}}}}
"""

MISTAKES = [
    ("%a = tadd %a, %b : !pto.tile<8x8xf32>", "`b` is read before"),
    ("%s = %s + 1 : i64", "`s` is read before"),
    ("IF %n > 0:u1\n%s = 1 : i64\nENDIF\n%s = %s : i64", "`s` is read before"),
    ("FOR %i:idx, 0:idx, %n:idx, 1:idx\n%s = 1 : i64\nENDFOR\n%s = %s : i64", "`s` is read before"),
    ("%s = dim(%b, 0) : i64", "`b` is read before"),
    ("%s = dim(%x, 2) : i64", "`x` has dimensions 0 to 1, not a dimension 2"),
    ("%s = dim(%x, 2147483647) : i64", "not a dimension 2147483647"),
    ("%s = dim(%a, 7) : i64", "`a` has dimensions 0 to 1"),
    ("%s = %n + %h : i64", "of i64 and f32"),
    ("%s = %n & i64(%h < 1.0 or %n) : i64", "of b1 and i64"),
    ("%s = i64(not(%n)) : i64", "`not` of i64"),
    ("%s = select(%n, 1, 2) : i64", "a condition is a truth value"),
    ("IF %n:u1\nENDIF", "a condition is a truth value"),
    ("FOR %i:idx, 0:idx, %h:idx, 1:idx\nENDFOR", "bounds of a loop"),
    ("FOR %i:idx, 0:idx, 4:idx, 0:idx\nENDFOR", "positive"),
]


@pytest.mark.parametrize(("lines", "message"), MISTAKES, ids=[lines for lines, _ in MISTAKES])
def test_bodies(lines: str, message: str) -> None:
    with pytest.raises(InvalidIR, match=message) as caught:
        parse(KERNEL.format(lines), "f.pto")
    assert caught.value.loc is not None and caught.value.loc.line >= 6


def test_a_number_that_is_open_is_left_out() -> None:
    with pytest.raises(BadText, match="a number above 0") as caught:
        parse("SCHEDULE {\n  window = stall(n = 0)\n}\n")
    assert caught.value.loc is not None and caught.value.loc.line == 2


def test_loops_that_surely_run_write() -> None:
    parse(KERNEL.format("FOR %i:idx, 0:idx, 4:idx, 1:idx\n%s = %i : i64\nENDFOR\n%s = %s + 1 : i64"))


@pytest.mark.parametrize("shape", ["0x8", "8x0", "100000x100000"])
def test_tiles_have_a_size(shape: str) -> None:
    with pytest.raises(InvalidIR, match="a tile has elements"):
        parse(f"func @f() {{\n  %a = alloc_tile : !pto.tile<{shape}xf32>\n}}\n")


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("IF %n > 0:u1\ntstore %a, %y[:, :]\nENDIF", OutNotStored),
        ("FOR %i:idx, 0:idx, %n:idx, 1:idx\ntstore %a, %y[:, :]\nENDFOR", OutNotStored),
        ("%a = tload %y[:, :] : !pto.tile<8x8xf32>\ntstore %a, %y[:, :]", OutRead),
    ],
)
def test_outputs_are_stored_on_every_path(lines: str, error: type[PtoError]) -> None:
    body = KERNEL.replace("  tstore %a, %y[:, :]\n", "")
    with pytest.raises(error, match="`y`"):
        parse(body.format(lines))
    parse(body.replace("{{out, tile}}", "{{inout, tile}}").format(lines))
