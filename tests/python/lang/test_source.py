"""Reading functions from their source: true places, the scope's values, and refusals without source."""

from __future__ import annotations

import doctest
import linecache
import types
from pathlib import Path

import pytest

from pto_wsp.errors import NoSource, PtoError
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.types import TileType, f32
from tests.python.lang.programs import error_of, execute, ir_of, marked


def tile_of(kernel: object) -> TileType:
    tile = ir_of(kernel).params[0].type
    assert isinstance(tile, TileType)
    return tile


CLOSURE = """
def make(R):
    def inner(C):
        @kernel
        def k(x: {0}In[Tile[R, C + 1, f32]]{0}, y: {0}Out[Tile[R, C + 1, f32]]{0}):
            pto.store(y, x)
        return k
    return inner(7)
k, k2 = make(4), make(5)
"""


@pytest.mark.parametrize("quote", ["", "'"])
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_annotations_see_the_functions_around_them(quote: str, future: str) -> None:
    names = execute(future + CLOSURE.format(quote).lstrip("\n"))
    assert tile_of(names["k"]) == TileType(4, 8, f32)
    assert tile_of(names["k2"]) == TileType(5, 8, f32)


def test_decorators_with_and_without_arguments() -> None:
    names = execute("@kernel()\ndef k(x: In[Tile[4, 8, f32]]): ...\n@workload()\ndef w(): pass")
    assert isinstance(names["k"], Kernel)


def test_functions_without_source_are_refused() -> None:
    scope = execute("")
    with pytest.raises(NoSource) as caught:
        exec("@kernel\ndef k(x: In[Tile[4, 8, f32]]): ...", scope)
    assert "k" in str(caught.value)


def test_a_file_edited_since_it_was_imported_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    head = "from pto_wsp import *\n@kernel\ndef k(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):\n"
    text = head + "    pto.store(y, x * 2)\n"
    code = compile(text, str(path), "exec", dont_inherit=True)
    path.write_text(text.replace("x * 2", "x * 3"))
    with pytest.raises(NoSource):
        exec(code, {})
    path.write_text(text)
    linecache.checkcache(str(path))
    exec(code, {})


def test_workloads_need_no_source() -> None:
    scope = execute("@kernel\ndef k(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):\n    pto.store(y, x)")
    loop = "    for rows in P.tiles('n', 4):\n        k[rows](x=X[rows], y=Y[rows])"
    text = "@workload\ndef w(X: Tensor[f32, 'n', 8], Y):\n" + loop
    exec(compile(text, "<string>", "exec", dont_inherit=True), scope)
    module = scope["w"].trace().module  # type: ignore[attr-defined]
    assert "CALL @k[%i](%X[%i, :], %Y[%i, :])" in str(module)


def test_doctests_are_source() -> None:
    text = """
    >>> from pto_wsp import In, Out, Tile, f32, kernel, pto
    >>> @kernel
    ... def k(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    ...     pto.store(y, x + 1)
    >>> k
    <kernel k(x, y)>
    """
    module = types.ModuleType("example")
    module.__doc__ = text
    assert doctest.testmod(module) == (0, 1 + 2)


def test_places_are_characters_in_lines_as_written() -> None:
    error = error_of(
        """
        class Scope:
            if True:
                @kernel
                def k(x: In[Tile[4, 8, f32]], größe: Out[Tile[4, 8, f32]]):
                    ä = 'ü' ; größe_neu = x + unbekannt
        """
    )
    assert isinstance(error, PtoError)
    assert marked(error) == "unbekannt"


def test_captured_values_are_those_of_the_decoration() -> None:
    names = execute(
        """
        SCALE = 2.0
        @kernel
        def k(x: In[Tensor], y: Out[Tensor]):
            for r in pto.tiles(x.rows, 4):
                for c in pto.tiles(x.cols, 4):
                    pto.store(y[r, c], x[r, c] * SCALE)
        SCALE = 3.0
        """
    )
    assert "2.0" in repr(ir_of(names["k"])) and "3.0" not in repr(ir_of(names["k"]))
