"""What errors propose for functions that do not exist: the lines that they print compute what they say."""

from collections.abc import Callable
from textwrap import indent

import numpy as np
import pytest

from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.lang.kernel.suggestions import OTHER_NAMES, WRITTEN_OUT, suggestion
from tests.python.lang.programs import error_of, execute, marked

Meaning = Callable[[np.ndarray], np.ndarray]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def scaled(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + eps)


MEANINGS: dict[str, Meaning] = {
    "softmax": softmax,
    "log_softmax": lambda x: np.log(softmax(x)),
    "logsumexp": lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
    "mean": lambda x: x.mean(1, keepdims=True),
    "rms_norm": lambda x: scaled(x, 1e-6),
    "layer_norm": lambda x: scaled(x - x.mean(1, keepdims=True), 1e-5),
    "square": np.square,
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_the_lines_compute_it(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    expected = MEANINGS[name](x)
    cols = expected.shape[1]
    lines = suggestion(name).splitlines()[1:]
    names = execute(
        f"@kernel\ndef f(a: In[Tile[4, 8, f32]], b: Out[Tile[4, {cols}, f32]]):\n    x = pto.load(a)\n"
        + "\n".join(lines)
        + "\n    pto.store(b, y)\n\n"
        "@workload\n"
        f"def w(A: Tensor[f32, 4, 8], B: Tensor[f32, 4, {cols}]):\n    f(a=A, b=B)\n"
    )
    found = np.empty_like(expected)
    names["w"].compile("interp").run(A=x, B=found)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_other_names_exist() -> None:
    assert FUNCTIONS.keys().isdisjoint(WRITTEN_OUT)
    for name, instead in OTHER_NAMES.items():
        assert name not in FUNCTIONS
        for part in f"pto.{instead}".split("`")[::2]:
            assert part.removeprefix("pto.") in FUNCTIONS


def kernel_error(body: str) -> Exception:
    parameters = "a: In[Tile[4, 8, f32]], n: Scalar[i64], y: Out[Tile[4, 8, f32]]"
    return error_of(f"@kernel\ndef f({parameters}):\n{indent(body, '    ')}\n    pto.store(y, a)\n")


@pytest.mark.parametrize(
    ("body", "mark", "hint"),
    [
        ("b = pto.softmax(a)", "pto.softmax", "y = e / pto.rowsum(e)"),
        ("b = pto.Exp(a)", "pto.Exp", "did you mean `exp`?"),
        ("b = pto.sum(a)", "pto.sum", "use `pto.rowsum` or `pto.colsum`"),
        ("f(a, n, y)", "f", "repeat with `for` or `while`"),
        ("t = pto.load(a)\nwhile pto.rowmax(t)[0, 0] > 1:\n    t = t * 0.5", "pto.rowmax(t)[0, 0] > 1",
         "assign it to a name before the loop, and again at the end of the body"),
        ("assert n > 0", "assert n > 0", 'pto.check(condition, "message")'),
        ("b = pto.matmul(a, 3)", "3", "expected a tile, found `3`"),
        ("b = pto.take(a, 3)", "3", "expected a tile, found `3`"),
        ("b = pto.maximum(pto.exp(a) * 2, pto.tiles)", "pto.tiles", "expected a tile or a scalar"),
        ("b = pto.where(n, a, a)", "n", "expected a tile"),
    ],
)  # fmt: skip
def test_messages_mark_the_part_and_say_what_to_do(body: str, mark: str, hint: str) -> None:
    error = kernel_error(body)
    assert marked(error) == mark
    assert hint in str(error)


def test_a_tile_that_is_too_large_is_measured_in_bytes() -> None:
    error = error_of("@kernel\ndef f(x: In[Tile[4096, 8192, f32]]):\n    pass\n")
    expected = "expected a tile of at most 16777216 bytes, found 134217728 bytes, 4096 x 8192 of f32"
    assert expected in str(error)
    assert "loop over parts of it with `pto.tiles`" in str(error)
