"""No text does anything but be read, or be refused by name."""

from __future__ import annotations

import random
import string

from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import parse
from pto_wsp.errors import PtoError
from pto_wsp.text import to_python
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.modules import random_module
from tests.python.builder.softmax import softmax_module
from tests.python.samples import scale_module
from tests.python.text.test_foreign import LOOPED, ROWMAX, kernel
from tests.python.text.test_parser import places

NUM_TEXTS = 400
"""Many thousands have been read: a change of the parser deserves as many."""

SCALARS = """\
  %c = alloc_scalar : u1
  %n = alloc_scalar : i32
  IF_BIT %n:i32, 4
    WHILE (), ()
      CMP %c:u1, %n:i32, 3, GT
    DO
      MUL %n:i32, %n:i32, 2
    ENDWHILE %c:u1
  ENDIF
  %b = tmuls %a, %1e-05 : !pto.tile<8x8xf32>, f32"""
MEMORY = """\
func @f(%t: !pto.memref<gm,4x2,i32>, %x: !pto.memref,
        %y: !pto.memref<gm,<8x32>,f32>, %z: !pto.memref<gm,1x1,i32>) {
  %a = alloc_tile : !pto.tile<8x32xf32>
  %i = alloc_tile : !pto.tile<8x32xi32>
  %k = alloc_scalar : i32
  LOAD %k:i32, %t[1, 0]
  %a = tload %x[%t[%k, 1] - dim(%t, 0), 0] : (memref, index, index) -> tile
  %a, %i = tsort32 %a : !pto.tile<8x32xf32> -> !pto.tile<8x32xf32>, !pto.tile<8x32xi32>
  %b = taddsc %a, %0.5, %a : !pto.tile<8x32xf32>
  %c = alloc_tile : !pto.tile<4x4xf32>
  %c = textract %b[%k, 4] : !pto.tile<4x4xf32>
  IF %k > 3:u1
    STORE %k + 40:i32, %z[0, 0]
  ELSE
    STORE %t[0, 0]:i32, %z[0, 0]
  ENDIF
  tstore %b, %y[0, 0]
}
"""
OLDER = (
    ".function f\n.memref x: gm f32\n.tile a: f32[8, 8]\n%a = tload %x[0, 0]\ntstore %a, %x[0, 0]\n.end f\n"
)


def samples() -> list[str]:
    texts = [str(scale_module()), str(softmax_module()), ROWMAX + LOOPED, kernel(SCALARS), MEMORY, OLDER]
    return texts + [str(random_module(random.Random(seed))) for seed in range(20)]


TEXTS = samples()
WORDS = sorted({"\n", *(word for text in TEXTS for word in text.split())})


def mutated(draw: Draw, others: list[str]) -> str:
    """Return a text with some of it changed: characters, pieces of lines, whole lines."""
    text = draw.choice(others)
    for _ in range(draw.choice((1, 1, 2, 5))):
        kind, at = draw.randrange(6), draw.randrange(len(text) + 1)
        end = min(len(text), at + draw.choice((1, 3, 10, 200)))
        lines = text.split("\n")
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + draw.choice(string.printable + "é\u2028\x00") + text[at:]
        elif kind == 2:
            text = text[:at] + text[at:end] * 2 + text[end:]
        elif kind == 3:
            words = draw.choice(others).split()
            text = text[:at] + draw.choice(words) + text[end:]
        elif kind == 4:
            draw.shuffle(lines)
            text = "\n".join(lines)
        else:
            lines.insert(draw.randrange(len(lines)), draw.choice(draw.choice(others).split("\n")))
            text = "\n".join(lines)
    return text


def read(text: str) -> bool:
    """Read a text; return whether it is one. What is read prints, and is read again as the same."""
    try:
        module = parse(text)
    except PtoError as error:
        assert str(error)
        return False
    printed = str(module)
    assert str(parse(printed)) == printed, text
    return True


def test_mutated_texts() -> None:
    are_read: list[bool] = []

    @tries(3 * NUM_TEXTS)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        are_read.append(read(mutated(draw, TEXTS)))

    check()
    assert True in are_read and False in are_read


def outcome(text: str) -> object:
    """Return the module that a text says with every place in it, or the error that refuses it."""
    try:
        module = parse(text)
    except PtoError as error:
        return str(error)
    return module, [*places(module)]


@tries(3 * NUM_TEXTS)
@given(st.binary(max_size=60), st.lists(st.sampled_from(WORDS), max_size=60))
def test_random_text(data: bytes, words: list[str]) -> None:
    read(data.decode("latin-1"))
    read("func @f() {\n" + " ".join(words) + "\n}")


@tries(120)
@given(DRAWS)
def test_python_of_mutated_texts(draw: Draw) -> None:
    """The Python of any text that is read is Python, and makes the same module."""
    try:
        module = parse(mutated(draw, TEXTS))
    except PtoError:
        return
    names: dict[str, object] = {"__name__": "made"}
    exec(compile(to_python(module), "<made>", "exec"), names)
    assert str(names["ir"]) == str(module)
