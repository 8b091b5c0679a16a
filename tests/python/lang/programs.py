"""Programs made of text: source files that exist only in `linecache`, as notebook cells do."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Mapping
from textwrap import dedent, indent

import numpy as np
import pytest

from pto_wsp.errors import PtoError
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.types import ViewType, f32

IMPORTS = "from math import inf, sqrt\nimport math\nfrom pto_wsp import *\n"
NUMBERS = itertools.count()


def execute(text: str, scope: Mapping[str, object] | None = None) -> dict[str, object]:
    """Run a program from a file of its own and return its names."""
    name = f"<program-{next(NUMBERS)}>"
    text = dedent(text)
    future, text = text.split("\n", 1) if text.startswith("from __future__") else ("", text)
    source = f"{future}\n{IMPORTS}{text}"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = dict(scope or {})
    exec(compile(source, name, "exec", dont_inherit=True), names)
    return names


def ir_of(kernel: object) -> KernelFunction:
    """Return the verified IR of a kernel; bare tensors are f32 with two dimensions, constants 16."""
    assert isinstance(kernel, Kernel)
    views = {
        p.name: ViewType(f32, (None, None))
        for p in kernel.params
        if p.is_generic and isinstance(p.type, ViewType)
    }
    constants = {p.name: 16 for p in kernel.params if p.is_generic and p.name not in views}
    function = kernel.specialise(views, constants)
    verify(Module("m", (function,), (), ""))
    return function


def kernel_of(signature: str, body: str) -> KernelFunction:
    """Return the IR of a kernel called `k`."""
    text = f"@kernel\ndef k({signature}):\n{indent(dedent(body), '    ')}"
    return ir_of(execute(text)["k"])


def result_of(
    signature: str, body: str, *args: np.ndarray | float, out: tuple[int, int], dtype: type = np.float32
) -> np.ndarray:
    """Run a kernel whose last parameter is its output and return what it stores there."""
    result = np.full(out, 77, dtype)
    run_kernel(kernel_of(signature, body), [*args, result])
    return result


def error_of(text: str) -> PtoError:
    """Return the error of a program."""
    with pytest.raises(PtoError) as caught:
        execute(text)
    return caught.value


def marked(error: PtoError) -> str:
    """Return the source text that an error underlines."""
    assert error.loc is not None
    line = error.loc.source_line()
    assert line is not None and error.loc.col > 0
    return line[error.loc.col - 1 : error.loc.end_col - 1]
