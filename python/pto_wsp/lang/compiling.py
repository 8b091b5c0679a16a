"""The hook by which `compile` methods reach the runtime, which is a layer above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_wsp.device.model import Device
from pto_wsp.lang.workload.build_module import Traced

if TYPE_CHECKING:
    from pto_wsp.prove.finding import Proof
    from pto_wsp.runtime.program import Program
else:
    Program = Any

_Hook = Callable[
    [Traced, str, "str | Path | Device | None", bool, str, "Mapping[str, Any] | None", "Proof | None"],
    Program,
]

_hook: list[_Hook] = []


def set_compile_hook(hook: _Hook) -> None:
    """Set the function that `compile_traced` calls. `runtime.compiling` sets it once."""
    _hook[:] = [hook]


def compile_traced(
    traced: Traced,
    target: str,
    device: str | Path | Device | None = None,
    values: bool = True,
    expander: str = "bytecode",
    given: Mapping[str, Any] | None = None,
    proof: Proof | None = None,
) -> Program:
    """Compile a traced workload for a target; the errors are those of `Workload.compile`."""
    return _hook[0](traced, target, device, values, expander, given, proof)
