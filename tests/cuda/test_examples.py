"""Examples of the cookbook on the target `cuda`, emulated: the results of the cpu."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from pto_wsp import Program
from tests.cuda.launched import launched

EXAMPLES = ("decode_loop", "ragged_attention")
LONGER = ("batched_lora", "gated_linear_attention", "quantised_linear", "tree_attention", "windowed_alibi")


@pytest.mark.parametrize(
    "name", [*EXAMPLES, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)]
)
@pytest.mark.usefixtures("gpu")
def test_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat the first call of each program of an example, and compare every array."""
    calls: list[tuple[Program, dict[str, object], dict[str, object]]] = []
    call = Program.__call__

    def recorded(self: Program, *args: Any, **values: Any) -> object:
        before = {key: copied(value) for key, value in values.items()}
        found = call(self, *args, **values)
        if all(known is not self for known, _, _ in calls):
            calls.append((self, before, {key: copied(value) for key, value in values.items()}))
        return found

    monkeypatch.setattr(Program, "__call__", recorded)
    module = f"examples.cookbook.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.import_module(module)
    assert calls
    for program, before, after in calls:
        launched(program.module).run(**(before | {"workers": 3}))
        for key, wanted in after.items():
            if isinstance(wanted, np.ndarray):
                found = before[key]
                assert isinstance(found, np.ndarray)
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=key)


def copied(value: object) -> object:
    """Return a copy of an array; other values do not change."""
    return value.copy() if isinstance(value, np.ndarray) else value
