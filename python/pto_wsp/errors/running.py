"""Arguments that do not fit, and runs that fail."""

from __future__ import annotations

from pto_wsp.errors.base import ArrayError, BindError, RunError
from pto_wsp.location import Location


class UnboundTensor(BindError):
    """A tensor or size without a value in a call of a program."""

    code = "unbound"
    template = "{kind} `{name}` has no value in this call"
    hint = "{advice}"


class UnknownParameter(BindError):
    """A keyword that is not a parameter of the program."""

    code = "unknown-parameter"
    template = "program `{program}` has no parameter `{name}`"
    hint = "{advice}"


class WrongValue(BindError):
    """A value that a parameter of the program cannot take."""

    code = "wrong-value"
    template = "`{name}` cannot take this value"
    label = "expected {expected}, found {found}"


class WrongDType(ArrayError):
    """An array whose element type is not the tensor's."""

    code = "wrong-dtype"
    template = "array `{name}` has the wrong element type"
    label = "expected {expected}, found {found}"
    hint = "convert the array before the call, or declare the tensor with this type"

    def __init__(self, *, name: str, expected: object, found: object, loc: Location | None = None) -> None:
        hint = None
        if str(expected) == "bf16":  # numpy alone has no such type
            hint = f"convert it once: `{name}.astype(pto_wsp.bf16.to_numpy())`"
        super().__init__(name=name, expected=expected, found=found, loc=loc, hint=hint)


class WrongRank(ArrayError):
    """An array whose number of dimensions is not the tensor's."""

    code = "wrong-rank"
    template = "array `{name}` has the wrong number of dimensions"
    label = "expected {expected}, found {found}"
    hint = "reshape the array: `array[None]` adds a dimension, `array[0]` drops one"


class WrongShape(ArrayError):
    """An array whose size disagrees with the declaration or with another array."""

    code = "wrong-shape"
    template = "dimension {dim} of array `{name}` has the wrong size"
    label = "expected {expected}, found {found}"
    hint = "pass an array of the declared shape; a named size has one value in a call"


class UnusableArray(ArrayError):
    """An array that the engine cannot work on in place."""

    code = "unusable-array"
    template = "array `{name}` cannot be used as it is"
    label = "{reason}"
    hint = "pass a C-contiguous, aligned, writable array of this machine's byte order, or a slice of one"


class ReadOnlyArray(ArrayError):
    """A read-only array for a tensor that the program writes."""

    code = "read-only-array"
    template = "array `{name}` is read-only, and the program writes it"
    hint = "pass a writable array"


class OverlappingArrays(BindError):
    """Two arguments that share memory without being the same view, one of them written."""

    code = "overlapping-arrays"
    template = "arrays `{first}` and `{second}` share memory, and the program writes {written}"
    label = "{detail}"
    hint = "pass the identical array, or arrays that do not overlap"


class BadRagged(BindError):
    """Lengths or an index pointer that describe no rows."""

    code = "bad-ragged"
    template = "`{what}` cannot describe rows of a ragged axis"
    label = "expected {expected}, found {found} at {place}"
    hint = "`Ragged.lengths([3, 0, 2])` and `Ragged.indptr([0, 3, 3, 5])` are the same rows"


class BadSparse(BadRagged):
    """CSR arrays that describe no rows of indices."""

    code = "bad-sparse"
    template = "`{what}` cannot describe rows of a sparse axis"
    hint = "`Sparse.csr([0, 2, 2, 3], [5, 1, 0])` and `Sparse.lists([[5, 1], [], [0]])` are the same rows"


class RegionOutside(RunError):
    """A view that reaches outside its tensor."""

    code = "region-outside"
    template = "`{tensor}` is indexed outside dimension {dim}"
    label = "expected a range inside [0, {size}), found [{start}, {stop}){where}"
    hint = "only ranges made by `P.tiles` are clipped, and only to their own axis"


class ViewShape(RunError):
    """A view whose run-time shape does not fit its kernel parameter."""

    code = "view-shape"
    template = "argument `{param}` of kernel `{kernel}` has a shape that it cannot take"
    label = "expected {expected} in dimension {dim}, found {found}{where}"
    hint = "a parameter `Tile[rows, cols, dtype]` accepts smaller views, a dimension `DYN` any size"


class RowOutside(RunError):
    """A row set with an index that names no row of its tensor."""

    code = "row-outside"
    template = "`{indices}` names row {row} of `{tensor}`, which has {size} rows"
    label = "position {position} of `{indices}` holds {row}, expected a row in [0, {size}){where}"
    hint = "correct the indices, or leave out such rows with `P.when`"


class RowRepeated(RunError):
    """A row set that a task writes and that names a row twice: the result would depend on chance."""

    code = "row-repeated"
    template = "`{tensor}` is written through `{indices}`, which names row {row} twice"
    label = "positions {first} and {second} of `{indices}` both hold {row}{where}"
    hint = "let each task write a row once, or give the rows to different tasks"


class StridedRows(RunError):
    """A row set over rows that do not lie evenly in memory."""

    code = "strided-rows"
    template = "`{tensor}` cannot be indexed by rows: dimension {dim} does not step over those after it"
    hint = "pass a packed array: `numpy.ascontiguousarray(array)`"


class NoTier(RunError):
    """A size that no tier takes."""

    code = "no-tier"
    template = "no tier of `{tier}` takes size {size}"
    label = "its tiers end at {tiers}"
    hint = "add a tier with a larger bound, or one without (`None`)"


class AssumptionFails(RunError):
    """A condition that `assume` states and that does not hold."""

    code = "assumption-fails"
    template = "`{condition}` is assumed and does not hold{where}"
    label = "assumed here"
    hint = "call the program with other values, or remove the assumption"


class NegativeAmount(RunError):
    """A task that asks for a negative workspace, or is said to take a negative time."""

    code = "negative-amount"
    template = "the {what} of a task of kernel `{kernel}` is negative"
    label = "expected at least 0, found {found}{where}"
    hint = "return at least 0: `(...).max(0)`"


class NoDispatcher(RunError):
    """A key of `DispatchPolicy.dispatch_by` that is the number of no dispatcher."""

    code = "no-dispatcher"
    template = "a task of kernel `{kernel}` is for dispatcher {found}"
    label = "expected one of 0 to {most}{where}"
    hint = "take the key modulo the number of dispatchers, or use `DispatchPolicy.affinity`"


class WindowFull(RunError):
    """A window with `WindowMode.ABORT` that has no room for a task."""

    code = "window-full"
    template = "the window of {size} tasks has no room for a task of kernel `{kernel}`"
    label = "this task{where}"
    hint = "take a larger window, or let the walk wait: `WindowMode.STALL`"


class Stuck(RunError):
    """A run in which no task can go on, and not all are complete: a fault of the engine."""

    code = "stuck"
    template = "no task can run, and {count} wait for ever"
    label = "the first is {first}"
    hint = "this is a fault of PTO-WSP: please report it with the program"


class StridedView(RunError):
    """A view whose innermost dimension does not lie contiguously in memory."""

    code = "strided-view"
    template = "argument `{param}` of kernel `{kernel}` views `{tensor}` with an innermost stride above 1"
    label = "dimension {dim} of `{tensor}` is innermost in the view"
    hint = "keep the tensor's last dimension in the view, or lay the tensor out the other way"


class BadExpression(RunError):
    """A scalar expression without a value, in an iteration of the loops around it if there are any."""

    code = "bad-expression"
    template = "an expression has no value: {reason}"

    def in_iteration(self, where: str) -> BadExpression:
        """Show the loop variables, ` in iteration b = 3`, and return the error."""
        self.caret_text = self.caret_text or where.strip()
        return self


class KernelFailed(RunError):
    """A check inside a kernel that failed."""

    code = "kernel-failed"
    template = "kernel `{kernel}` failed: {reason}"
    label = "{detail}"


class IterationsConflict(RunError):
    """Tasks of different iterations of a P loop that touch the same elements, found by `check="hazards"`."""

    code = "iterations-conflict"
    template = "`{second}`{second_where} {second_does} what `{first}`{first_where} {first_does}: `{region}`"
    label = "{kind}"
    hint = "P states that iterations are independent; where their order matters, use `P.range` or `P.seq`"
    hint_of_tiles = (
        "P.tiles states that iterations are independent; where their order matters, give it "
        '`order="range"` or `order="seq"`'
    )


class InstancesConflict(RunError):
    """Instances of a kernel with `block_dim` that write the same element, found by `check="hazards"`."""

    code = "instances-conflict"
    template = (
        "instances {first} and {second} of `{kernel}`{where} write the same element: `{param}[{index}]`"
    )
    label = "the argument that both write"
    hint = "give each instance a part of its own, by `block_idx`"


class EdgesMissing(RunError):
    """Tasks that touch the same elements and that no edges order, under the schedule `Deps.explicit()`."""

    code = "edges-missing"
    template = "`{second}`{second_where} {second_does} what `{first}`{first_where} {first_does}: `{region}`"
    label = "{kind}, and no edges lead from one to the other"
    hint = "name the first task in `after=` of the second, or let the engine find the order: `Deps.hybrid()`"


class RowsNotKnown(RunError):
    """Row sets that a check cannot compare, since tasks write their indices."""

    code = "rows-not-known"
    template = "which rows of `{tensor}` kernel `{kernel}` touches is known only to the run itself"
    label = "tasks write the indices of row sets of `{tensor}`"
    hint = "such tasks can be checked where all row sets of a tensor take their rows from one `group_by`"


class NoReference(RunError):
    """A kernel in C++ that the target `interp` is asked to run."""

    code = "no-reference"
    template = "kernel `{name}` is C++ and has no reference in numpy"
    label = "declared here"
    hint = (
        "declare it with `reference=function`, a numpy function of the same parameters, or use another target"
    )


class OutOfMemory(RunError):
    """Memory that a run needs and the machine does not have."""

    code = "out-of-memory"
    template = "there is no memory for {what}"
    label = "{size}"
    hint = "use smaller sizes or fewer workers, or free memory"


class NestedRun(RunError):
    """A program that is run from inside a run, or while a workload is described."""

    code = "nested-run"
    template = "a program cannot be run from inside {where}"


class ArraysInFlight(BindError):
    """Arrays of a run that overlap those of an unfinished run, one of the two writing."""

    code = "arrays-in-flight"
    template = (
        "`{name}` overlaps an array of run {run}, which is not finished, and one of the two runs writes it"
    )
    label = "this run is refused"
    hint = "wait for the other run, or give this one arrays of its own"


class NothingRecorded(RunError):
    """A report or an advice on a run of which dispatchers were not recorded."""

    code = "nothing-recorded"
    template = 'no run of `{program}` was recorded: expected a last run with `trace="full"`'
    hint = 'run the program on `cpu` or `sim` with `trace="full"`, then ask again'


class RunInterrupted(RunError):
    """A run that could not be finished."""

    code = "run-interrupted"
    template = "the run could not be finished: {reason}"


class TimeLimitReached(RunError):
    """A run that was not finished within its `time_limit`."""

    code = "time-limit"
    template = "the run was not finished within its time limit of {seconds:g} s"
    label = "{detail}"


class ValuesDiffer(RunError):
    """A task whose output is not what its kernel means in numpy, found by `check="values"`."""

    code = "values-differ"
    template = "kernel `{kernel}` writes {found} to `{param}[{index}]`, and the interpreter writes {expected}"
    label = "{detail}"
    hint = "run the task alone with `program.task({task}).run(...)`, and look inside with `pto.print`"


class NanWritten(RunError):
    """A task that writes a NaN though none of its arguments holds one, found by `check="values"`."""

    code = "nan-written"
    template = "kernel `{kernel}` writes a NaN to `{param}[{index}]`, and no element that it was given is one"
    label = "{detail}"
    hint = "run the task alone with `program.task({task}).run(...)`, and look inside with `pto.print`"


class ElementNotStored(RunError):
    """A task that leaves an element of an output as it was, found by `check="values"`."""

    code = "element-not-stored"
    template = "kernel `{kernel}` does not store `{param}[{index}]`, an element of its output"
    label = "{detail}"
    hint = "store every element of an output, or declare `{param}` InOut"


class NoSuchTask(RunError):
    """A task that is chosen by a number or name that no task, or more than one, has."""

    code = "no-such-task"
    template = "no single task is `{task}`: {reason}"
    hint = "`program.task_graph(...)` lists the tasks, and a trace shows their numbers"


class EngineFault(RunError):
    """A defect of the engine or of lowering, not of the user's program."""

    code = "engine-fault"
    template = "internal error `{engine_code}`: {details}"
    hint = "please report this with the program that caused it"
