"""Turn the failure of a launch, which speaks in numbers, into an error of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np

from pto_wsp.errors import BadExpression, KernelFailed, PtoError, RunError, Stuck
from pto_wsp.interp.workload import BoundTask, TensorReader, expand, run_workload, task_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.runtime.explain import failed_check_text
from pto_wsp.runtime.gpu_arrays import GpuArray
from pto_wsp.support.record import record
from pto_wsp.targets.cuda.driver import find_gpu
from pto_wsp.targets.cuda.emit import ProgramCode
from pto_wsp.targets.cuda.launch import DeviceFailure


def explain_launch(
    failure: DeviceFailure,
    module: Module,
    code: ProgramCode,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Value],
) -> PtoError:
    """Return the error of a launch.

    Args:
        failure: the first one in program order.
        module: the program.
        code: its code on the GPU, with the meaning of the failure's numbers.
        arrays: of the run, as they were given.
        sizes: values of sizes and scalars.
    """
    return _Explained(failure, module, code, arrays, sizes).error()


@record
class _Explained:
    failure: DeviceFailure
    module: Module
    code: ProgramCode
    arrays: Mapping[str, np.ndarray]
    sizes: Mapping[str, Value]

    def error(self) -> PtoError:
        if self.failure.cause == "check":
            return self._failed_check()
        if self.failure.cause == "stuck":
            return self._stuck()
        return self._found_again() or self._refused()

    @property
    def _site(self) -> w.Task:
        return self.code.walk.sites[self.failure.place]

    def _failed_check(self) -> PtoError:
        site = self._site
        check = self.code.kernels.checks[site.kernel][self.failure.code - 1]
        reason, scalars = failed_check_text(check, self.failure.values)
        return KernelFailed(
            kernel=site.kernel,
            reason=reason,
            detail=task_text(self.failure.task, self._where(), scalars),
            loc=check.loc or site.loc,
            notes=[("the task was made here", site.loc)] if check.loc else [],
        )

    def _stuck(self) -> PtoError:
        failure = self.failure
        if failure.is_walk:
            kernel, loc = "none", self.code.walk.places[failure.place][1]
        else:
            kernel, loc = self._site.kernel, self._site.loc
        waits = f"task {failure.task} waits for a task before {failure.awaited}"
        return Stuck(count="some", kernel=kernel, where=self._where(), loc=loc, notes=[(waits, loc)])

    def _refused(self) -> PtoError:
        """Return the error of a failure that follows from what tasks have written."""
        if self.failure.cause == "region":
            site = self._site
            reason = f"an argument of `{site.kernel}` has none, or is outside its tensor"
            error: RunError = BadExpression(reason=reason, loc=site.loc)
        else:
            what, loc = self.code.walk.places[self.failure.place]
            error = BadExpression(reason=what, loc=loc)
        error.found_late(self.failure.task)
        return error

    # --- the walk, again on the host ---

    def _decides_itself(self) -> bool:
        """Return whether elements that tasks write decide what runs: the host cannot walk again."""
        return not self.module.written.isdisjoint(w.deciding_tensors(self.module.entry_workload.body))

    def _found_again(self) -> PtoError | None:
        """Return the error that the reference walk finds in the arguments of the run, if it finds one."""
        if self._decides_itself():
            return None
        try:
            run_workload(self.module, self._on_host(), self.sizes, lambda *_: None)
        except RunError as error:
            return error
        return None

    def _where(self) -> str:
        """Return the loop variables of the task that failed, as far as the host can know them."""
        if self._decides_itself():
            return ""
        entry = self.module.entry_workload
        tasks = expand(entry, self.sizes, TensorReader(self._on_host()))
        found: BoundTask | None = next(islice(tasks, self.failure.task, None), None)
        return "" if found is None else found.where

    def _on_host(self) -> dict[str, np.ndarray]:
        """Return the arrays of the run, with the elements that decide what runs."""
        deciding = w.deciding_tensors(self.module.entry_workload.body)
        return {
            name: _copied(array) if name in deciding and isinstance(array, GpuArray) else array
            for name, array in self.arrays.items()
        }


def _copied(array: GpuArray) -> np.ndarray:
    """Return the elements of an array that lies on a GPU."""
    first, last = np.lib.array_utils.byte_bounds(array)
    found = np.empty(last - first, np.uint8)
    with find_gpu(array.gpu).current() as driver:
        driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, first, found.nbytes, None)
        driver.call("cuStreamSynchronize", None)
    return np.lib.stride_tricks.as_strided(found.view(array.dtype), array.shape, array.strides)
