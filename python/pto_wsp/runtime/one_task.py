"""Tasks run alone, and tasks compared one after another with the numpy meaning of their kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from pto_wsp.errors import ElementNotStored, NanWritten, NoSuchTask, ValuesDiffer, WrongValue
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.regions import scope_text
from pto_wsp.interp.workload import BoundTask, TensorReader, expand, run_workload, task_text
from pto_wsp.ir.check_texts import scalar_text
from pto_wsp.ir.kernel import IN, OUT, KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.location import caller_location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType

Arguments = Sequence["np.ndarray | Value"]
CallAlone = Callable[[KernelFunction, Arguments, int, int], None]
"""Runs a kernel on views and scalars, with that many bytes of workspace, as the task of a number."""

Arrays = Mapping[str, np.ndarray]

TOLERANCE: Mapping[str, float] = {"f64": 1e-9, "f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}
"""How far elements of an output may lie apart, as a part of its largest element. Integers must be equal."""


@record
class Chosen:
    """Which task: by its number, or the only one of a kernel in an iteration.

    Attributes:
        number: in program order, or None.
        kernel: name of its kernel, or empty.
        indices: values of loop variables around it, by name.
    """

    number: int | None
    kernel: str = ""
    indices: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        if self.number is not None:
            return f"task {self.number}"
        indices = ", ".join(f"{name}={value}" for name, value in self.indices)
        return f"{self.kernel}[{indices}]" if indices else self.kernel

    def fits(self, number: int, task: BoundTask) -> bool:
        """Return whether a task is meant."""
        if self.number is not None:
            return number == self.number
        if task.node.kernel != self.kernel:
            return False
        around = {loop.called: task.scope[loop.var] for loop in task.loops}
        return all(around.get(name) == value for name, value in self.indices)


class OneTask:
    """One task of a program, to run it alone: `program.task(12).run(X=x)`.

    Args:
        chosen: which task.
        run: runs it on the values of a call.
    """

    def __init__(self, chosen: Chosen, run: Callable[[Chosen, Mapping[str, Any]], None]) -> None:
        self._chosen = chosen
        self._run = run

    def __repr__(self) -> str:
        return f"<OneTask {self._chosen}>"

    def run(self, **values: Any) -> None:
        """Run the task, and no other, on what the arrays hold now; its outputs are written in place.

        Args:
            values: those of `Program.run`. Tensors that the program makes hold what the last run left there.

        Raises:
            NoSuchTask: no task, or more than one, is meant.
            PtoError: as `Program.run` raises for the values and for this task.
        """
        self._run(self._chosen, values)


def choose(which: int | str, indices: Mapping[str, int]) -> Chosen:
    """Return the choice of a task by its number, or by its kernel and loop variables around it.

    Raises:
        WrongValue: it is neither.
    """
    if isinstance(which, str):
        return Chosen(None, which, tuple(indices.items()))
    if isinstance(which, bool) or not isinstance(which, int) or which < 0 or indices:
        expected = "a number of a task, or the name of a kernel and values of loop variables"
        raise WrongValue(name="task", expected=expected, found=repr(which), loc=caller_location())
    return Chosen(which)


def run_alone(
    module: Module, arrays: Arrays, sizes: Mapping[str, Value], chosen: Chosen, call: CallAlone
) -> None:
    """Run one task on what `arrays` hold now.

    Raises:
        NoSuchTask: no task fits, or several do.
        RunError: as the task in a run.
    """
    made = expand(module.entry_workload, sizes, TensorReader(arrays))
    numbers = [number for number, task in enumerate(made) if chosen.fits(number, task)]
    if len(numbers) != 1:
        reason = "the program has no such task"
        if numbers:
            reason = f"tasks {numbers[0]} and {numbers[1]} fit; give values of the loop variables around it"
        raise NoSuchTask(task=str(chosen), reason=reason)
    wanted = numbers[0]

    def alone(kernel: KernelFunction, args: Arguments, workspace: int, number: int) -> None:
        if number == wanted:
            call(kernel, args, workspace, number)

    walk = _Walk(module, alone)
    run_workload(module, arrays, sizes, walk.call, walk.see)


def compare_values(module: Module, arrays: Arrays, sizes: Mapping[str, Value], call: CallAlone) -> int:
    """Run all tasks in program order, each also in numpy; return how many there are.

    Raises:
        ValuesDiffer: an output of a task is not what its kernel means in numpy.
        NanWritten: a task has written a NaN, and none of its inputs holds one.
        ElementNotStored: a task has left an element of an output as it was.
        NoReference: a kernel is C++ without a reference.
        RunError: as in a run.
    """

    def both(kernel: KernelFunction, args: Arguments, workspace: int, number: int) -> None:
        pairs: list[tuple[Param, Any]] = list(zip(kernel.params, map(copy, args), strict=True))
        meant = [_flipped(arg) if param.role == OUT else copy(arg) for param, arg in pairs]
        has_nan = any(param.role != OUT and _first_nan(arg) is not None for param, arg in pairs)
        call(kernel, args, workspace, number)
        run_kernel(kernel, meant, task=number, write=lambda text: None)
        for (param, before), found, expected in zip(pairs, args, meant, strict=True):
            if param.role != IN:
                compare(param, before, found, expected, has_nan)

    def compare(param: Param, before: Any, found: Any, expected: Any, has_nan: bool) -> None:
        assert param.type.dtype is not None
        if param.role == OUT:
            kept = _first(_same(found, before) & _same(expected, _flipped(before)))
            if kept is not None:
                raise walk.keeps(param.name, kept)
        at = _first_difference(found, expected, param.type.dtype)
        if at is not None:
            raise walk.differs(param.name, at, _text(found[at]), _text(expected[at]))
        nan = None if has_nan else _first_nan(found)
        if nan is not None:
            raise walk.writes_nan(param.name, nan)

    walk = _Walk(module, both)
    return run_workload(module, arrays, sizes, walk.call, walk.see)


class _Walk:
    """Passes each task of a run on with its kernel and number."""

    task: BoundTask

    def __init__(self, module: Module, each: CallAlone) -> None:
        self._each = each
        self.number = -1
        self._kernels = {kernel.name: kernel for kernel in module.kernels}

    def see(self, task: BoundTask) -> None:
        self.task = task
        self.number += 1

    def call(self, name: str, args: Arguments, workspace: int) -> None:
        self._each(self._kernels[name], args, workspace, self.number)

    def differs(self, param: str, index: tuple[int, ...], found: str, expected: str) -> ValuesDiffer:
        """Return the error of an element that is not what the interpreter writes."""
        return ValuesDiffer(
            kernel=self.task.node.kernel,
            param=param,
            index=", ".join(map(str, index)),
            found=found,
            expected=expected,
            task=self.number,
            detail=self.where,
            loc=self.task.node.loc,
        )

    def writes_nan(self, param: str, index: tuple[int, ...]) -> NanWritten:
        """Return the error of an element that is a NaN."""
        return NanWritten(
            kernel=self.task.node.kernel,
            param=param,
            index=", ".join(map(str, index)),
            task=self.number,
            detail=self.where,
            loc=self.task.node.loc,
        )

    def keeps(self, param: str, index: tuple[int, ...]) -> ElementNotStored:
        """Return the error of an element of an output that is as it was."""
        return ElementNotStored(
            kernel=self.task.node.kernel,
            param=param,
            index=", ".join(map(str, index)),
            detail=self.where,
            loc=self.task.node.loc,
        )

    @property
    def where(self) -> str:
        """The task and its iteration."""
        return task_text(self.number, scope_text(self.task.scope, self.task.loops), "")


def _first_difference(found: np.ndarray, expected: np.ndarray, dtype: DType) -> tuple[int, ...] | None:
    """Return the index of the first element that is too far from its meaning, or None."""
    if not dtype.is_float:
        return _first(found != expected)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    most = TOLERANCE[dtype.name] * (finite.max() if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        is_equal = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= most)
    return _first(~is_equal)


def _flipped(array: np.ndarray) -> np.ndarray:
    """Return other elements than those of an array, each of them."""
    return ~array if array.dtype == bool else (~_bytes(array)).view(array.dtype)[..., 0]


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which elements have the same bytes."""
    return (_bytes(a) == _bytes(b)).all(axis=-1)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array)[..., np.newaxis].view(np.uint8)


def _first_nan(array: np.ndarray | Value) -> tuple[int, ...] | None:
    if not isinstance(array, np.ndarray) or array.dtype.kind in "iub":
        return None
    return _first(np.isnan(array.astype(np.float64)))


def _first(which: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first true element, or None."""
    places = np.argwhere(which)
    return tuple(int(i) for i in places[0]) if len(places) else None


def _text(value: np.generic) -> str:
    return scalar_text(value.item() if value.dtype.kind in "iub" else float(value))
