"""Turn the failure of a launch, which speaks in numbers, into an error of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np

from pto_wsp.errors import BadExpression, KernelFailed, NoDispatcher, PtoError, RunError, Stuck
from pto_wsp.interp.workload import BoundTask, run_workload, task_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.runtime.explain import failed_check_text
from pto_wsp.runtime.host_walk import decides_itself, on_host, tasks_of
from pto_wsp.support.record import record
from pto_wsp.targets.cuda.emit import ProgramCode
from pto_wsp.targets.cuda.launch import MEETING, DeviceFailure


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
        if self.failure.cause == "key":
            return self._no_block()
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
            hint=check.text.hint,
        )

    def _no_block(self) -> PtoError:
        dispatch, site = self.module.schedule.find(DispatchPolicy), self._site
        assert dispatch is not None and dispatch.key is not None
        return NoDispatcher(
            kernel=site.kernel,
            found=self.failure.awaited - (self.failure.awaited >> 63 << 64),
            most=dispatch.n - 1,
            where=self._where(),
            loc=dispatch.key.loc,
            notes=[("the task was made here", site.loc)],
        )

    def _stuck(self) -> PtoError:
        failure = self.failure
        waits = f"task {failure.task} waits for a task before {failure.awaited}"
        if failure.place == MEETING:
            first, loc = (
                f"one that follows a check by block {failure.awaited}",
                self.module.entry_workload.loc,
            )
            waits = f"block {failure.awaited} has not checked its tasks, and others wait for it"
        elif failure.is_walk:
            what, loc = self.code.walk.places[failure.place]
            first = f"a block at `{what}`"
        else:
            site, where = self._site, self._where()
            first, loc = f"one of kernel `{site.kernel}`{where}", site.loc
        return Stuck(count="some", first=first, loc=loc, notes=[(waits, loc)])

    def _refused(self) -> PtoError:
        """Return the error of a failure that follows from what tasks have written."""
        if self.failure.cause == "region":
            site = self._site
            reason = f"an argument of `{site.kernel}` has none, is outside its tensor, or names a row twice"
            error: RunError = BadExpression(reason=reason, loc=site.loc)
        else:
            what, loc = self.code.walk.places[self.failure.place]
            error = BadExpression(reason=what, loc=loc)
        error.found_late(self.failure.task)
        return error

    # --- the walk, again on the host ---

    def _found_again(self) -> PtoError | None:
        """Return the error that the reference walk finds in the arguments of the run, if it finds one."""
        if decides_itself(self.module):
            return None
        try:
            run_workload(self.module, on_host(self.module, self.arrays), self.sizes, lambda *_: None)
        except RunError as error:
            return error
        return None

    def _where(self) -> str:
        """Return the loop variables of the task that failed, as far as the host can know them."""
        if decides_itself(self.module):
            return ""
        tasks = tasks_of(self.module, self.arrays, self.sizes)
        found: BoundTask | None = next(islice(tasks, self.failure.task, None), None)
        return "" if found is None else found.where
