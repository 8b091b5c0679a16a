"""The runner of compiled targets: a kernel library, bytecode, and the C++ engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import BadLibrary, PtoError
from pto_wsp.interp.workload import TensorReader
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_policy
from pto_wsp.ir.scalar import Element, Value, walk
from pto_wsp.passes.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.explain import explain
from pto_wsp.runtime.interpreted import InterpretedRunner
from pto_wsp.runtime.options import run_options
from pto_wsp.runtime.outcome import Figures, Runner
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record
from pto_wsp.targets.base import KernelArtifact, Target


def make_runner(module: Module, target: Target) -> Runner:
    """Return what runs `module` on `target`."""
    return EngineRunner(module, target) if target.builds_library else InterpretedRunner(module)


def _load(artifact: KernelArtifact) -> _native.KernelLibrary:
    try:
        return _native.KernelLibrary(str(artifact.path))
    except _native.EngineError as error:
        raise BadLibrary(path=artifact.path, reason=str(error)) from None


class EngineRunner:
    """Runs a module's tasks on the engine's worker pool."""

    def __init__(self, module: Module, target: Target) -> None:
        self.artifact = target.build(module.kernels, ArtifactCache())
        self.compiles = self.artifact.compiles
        self.compile_ms = self.artifact.compile_ms
        self.library = _load(self.artifact)
        self._loaded = self._load_bytecode(module, None)

    def reschedule(self, module: Module) -> None:
        """Load bytecode for the schedule of `module`; the kernels stay. A run under way ends as it began."""
        self._loaded = self._load_bytecode(module, self._loaded.executable)

    def _load_bytecode(self, module: Module, shared: _native.Executable | None) -> _Loaded:
        lowered = lower_workload_to_bytecode(module, self.artifact.kernels, self.artifact.table_hash)
        try:
            executable = _native.Executable(lowered.code, self.library, shared)
        except _native.EngineError as error:
            raise self._explained(error, module, lowered) from None
        return _Loaded(module, lowered, executable, run_options(module.schedule))

    def run(
        self,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
        workers: int,
        trace: int,
        check: bool = False,
        progress: Callable[[int], object] | None = None,
        jitter: int = 0,
    ) -> tuple[Figures, Trace | None]:
        """Run on `workers` threads (0: all cores). `jitter` seeds random delays before tasks, for tests."""
        loaded = self._loaded
        try:
            result = loaded.executable.run(
                tuple(arrays),
                tuple(scalars),
                workers,
                trace,
                jitter,
                check=check,
                options=loaded.options,
                progress=progress,
            )
        except _native.EngineError as error:
            raise self._explained(error, loaded.module, loaded.lowered, arrays) from None
        recorded = result.record
        return result, loaded.trace(recorded, arrays, scalars) if recorded is not None else None

    def _explained(
        self,
        error: _native.EngineError,
        module: Module,
        lowered: Lowered,
        arrays: Sequence[np.ndarray] = (),
    ) -> PtoError:
        if error.code == "kernel-failed" and self.library.has_native:
            number = error.details["check"]
            assert isinstance(number, int)
            failure = self.library.failure(number)
        else:
            failure = None
        return explain(error, module, lowered, self.artifact, arrays, failure)


@record
class _Loaded:
    """Bytecode in the engine, and the module that it is of."""

    module: Module
    lowered: Lowered
    executable: _native.Executable
    options: _native.RunOptions

    def trace(
        self, recorded: _native.RunRecord, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]
    ) -> Trace:
        """Return the record of a run."""
        given = zip(self.lowered.symbols, scalars, strict=True)
        sizes = {name: value for name, value in given if value is not None}
        for tensor, array in zip(self.module.entry_workload.tensors, arrays, strict=True):
            pairs = zip(tensor.type.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
        about = {
            "program": self.module.entry_workload.name,
            "schedule": "\n".join(
                f"{policy.directive} = {print_policy(policy)}" for policy in self.module.schedule.policies()
            ),
        }
        reader = self._key_reader(arrays)
        return Trace(self.lowered.sites, self.lowered.registers, recorded, sizes, reader, about)

    def _key_reader(self, arrays: Sequence[np.ndarray]) -> TensorReader:
        """Return a reader of what the coordinates of tasks name, which may change after the run."""
        tasks = [node for node in self.lowered.sites.values() if isinstance(node, w.Task)]
        parts = [part for task in tasks for key in task.keys for part in walk(key)]
        read = {part.name for part in parts if isinstance(part, Element)}
        named = zip(self.lowered.tensors, arrays, strict=True)
        return TensorReader({name: array.copy() for name, array in named if name in read})
