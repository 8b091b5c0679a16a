"""The error catalogue: one class per mistake.

A class gives its stable `code`, what the mistake is (`template`), what was expected and found at the caret
(`label`) and how to mend it (`hint`); the texts are filled from the keyword arguments of the constructor.
`docs/errors.md` is generated from this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pto_wsp.location import Location


class PtoError(Exception):
    """Base of every error that a user's program can cause.

    Args:
        loc: where the mistake was written, if known.
        notes: further places that have a part in it, each with a sentence; unknown places are left out.
        hint: replaces the class's hint.
        fields: what the class's texts mention.

    Attributes:
        fields: the keyword arguments, for programs that handle the error.
    """

    code: ClassVar[str] = "error"
    template: ClassVar[str] = "{message}"
    label: ClassVar[str] = ""
    hint: ClassVar[str] = ""

    def __init__(
        self,
        *,
        loc: Location | None = None,
        notes: Iterable[tuple[str, Location | None]] = (),
        hint: str | None = None,
        **fields: object,
    ) -> None:
        self.loc = loc
        self.notes = tuple((text, place) for text, place in notes if place is not None)
        self.fields = fields
        self.message = self.template.format(**fields)
        self.caret_text = self.label.format(**fields)
        self.help = self.hint.format(**fields) if hint is None else hint
        super().__init__(self.message)

    def __str__(self) -> str:
        """Render the message with its source line, caret, notes and hint."""
        lines = [f"error[{self.code}]: {self.message}"]
        lines += self._excerpt()
        lines += [f"note: {text} --> {place}" for text, place in self.notes]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        if self.loc is None:
            return [f"  = {self.caret_text}"] if self.caret_text else []
        lines = [f"  --> {self.loc}"]
        source = self.loc.source_line()
        if source is None:
            return lines + ([f"  = {self.caret_text}"] if self.caret_text else [])
        number = str(self.loc.line)
        margin = " " * len(number)
        start = self.loc.col or len(source) - len(source.lstrip()) + 1
        width = max(1, self.loc.end_col - start) if self.loc.col else len(source.strip())
        caret = "".join("\t" if c == "\t" else " " for c in source[: start - 1]) + "^" * width
        return [
            *lines,
            f"{margin} |",
            f"{number} | {source}",
            f"{margin} | {caret} {self.caret_text}".rstrip(),
        ]


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `name` may be a misspelling of, or None."""
    from difflib import get_close_matches  # here: programs without mistakes start without it

    return next(iter(get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest of `known`, or lists them."""
    candidates = sorted(known)
    close = closest(name, candidates)
    if close is not None:
        return f"did you mean `{close}`?"
    return "known: " + ", ".join(f"`{c}`" for c in candidates) if candidates else ""


class FrontendError(PtoError):
    """A kernel or workload that cannot be read."""


class VerifyError(PtoError):
    """An IR module that breaks a rule."""


class CompileError(PtoError):
    """A program that cannot be compiled."""


class BindError(PtoError):
    """Arguments that do not fit the program they are given to; nothing has run."""


class RunError(PtoError):
    """A run that failed.

    Attributes:
        tasks_before: how many tasks came before the place of an error that was found while the program ran:
            they may have run. None where nothing has run, or the error tells itself.
    """

    tasks_before: int | None = None

    def found_late(self, tasks_before: int) -> RunError:
        """Return the error, found when so many tasks came before it."""
        self.tasks_before = tasks_before
        return self

    def __str__(self) -> str:
        """Render the error, and say whether tasks have run."""
        text = super().__str__()
        if not self.tasks_before:
            return text
        tasks = "1 earlier task" if self.tasks_before == 1 else f"{self.tasks_before} earlier tasks"
        return f"{text}\nnote: {tasks} may have run and written; only the run itself could tell"


class ScheduleError(PtoError):
    """A schedule that does not fit what it is given to."""


class PlanError(PtoError):
    """A plan that cannot be made; nothing has been written."""


# --- reading kernels and workloads ---------------------------------------------------


class UnsupportedSyntax(FrontendError):
    """Python that has no meaning inside a kernel or workload."""

    code = "unsupported-syntax"
    template = "{construct} is not supported in a {where}"
    label = "{detail}"
    hint = "{advice}"


class NoSource(FrontendError):
    """A kernel whose source text cannot be found."""

    code = "no-source"
    template = "the source of kernel `{name}` is not available"
    hint = "kernels are read from their source: define them in a file or notebook cell, not through exec()"


class BadAnnotation(FrontendError):
    """A parameter whose annotation is missing or is not one of ours."""

    code = "bad-annotation"
    template = "parameter `{param}` of `{function}` is not annotated with a type it can have"
    label = "expected {expected}, found {found}"
    hint = "kernels take In/Out/InOut[Tile[...] or Tensor[...]], Scalar[dtype] and Constexpr[type]"


class UnknownName(FrontendError):
    """A name that is not defined where it is used."""

    code = "unknown-name"
    template = "`{name}` is not defined in {where}"
    label = "not defined"
    hint = "{advice}"


class UnknownInstruction(FrontendError):
    """A call of a `pto` or `ptoisa` function that does not exist."""

    code = "unknown-instruction"
    template = "`{name}` is not an instruction"
    label = "unknown instruction"
    hint = "{advice}"


class RunTimeCondition(FrontendError):
    """Python control flow on a value that exists only at run time."""

    code = "run-time-condition"
    template = "a run-time value has no truth value while the workload is built"
    label = "`{expr}` is known only when the program runs"
    hint = "branch with `with P.when(condition):`, or choose a value with `condition.where(a, b)`"


class RunTimeNumber(FrontendError):
    """Python code that needs a number where there is a value that exists only at run time."""

    code = "run-time-number"
    template = "a run-time value is not a number while the workload is built"
    label = "`{expr}` is known only when the program runs"
    hint = "loop over it with `P(n)` or `P.range(n)`, and compute with `//`, `%`, `.min()` and `.max()`"


class NoneKernelBody(FrontendError):
    """A kernel declaration without a body that is asked to run."""

    code = "kernel-without-body"
    template = "kernel `{name}` is only declared: its body is `...`"
    label = "declared here"
    hint = "give it a body, or do not call it in a program that runs"


class BadKernelOption(FrontendError):
    """An argument of `@kernel` that the kernel cannot have."""

    code = "bad-kernel-option"
    template = "kernel `{kernel}` cannot be declared like this: {problem}"
    label = "expected {expected}, found {found}"
    hint = "{advice}"


class UnknownKernel(FrontendError):
    """A name that no kernel was declared with."""

    code = "unknown-kernel"
    template = "no kernel is declared with the name `{name}`"
    label = "looked up here"
    hint = "{advice}"


class ShapeMismatch(FrontendError):
    """Tiles whose shapes do not fit an instruction."""

    code = "shape-mismatch"
    template = "shapes do not fit `{op}`"
    label = "expected {expected}, found {found}"


class DTypeMismatch(FrontendError):
    """Operands whose element types do not fit an instruction."""

    code = "dtype-mismatch"
    template = "element types do not fit `{op}`"
    label = "expected {expected}, found {found}"
    hint = "convert explicitly with `pto.cast(x, dtype)`"


class BadOperand(FrontendError):
    """An operand or argument that an operation cannot take."""

    code = "bad-operand"
    template = "`{op}` cannot take this"
    label = "expected {expected}, found {found}"


class OutNotStored(FrontendError):
    """An Out parameter that some path through the kernel never stores."""

    code = "out-not-stored"
    template = "kernel `{kernel}` does not store its output `{param}` on every path"
    label = "declared as an output here"
    hint = "store it with `pto.store({param}, ...)` on every path, or declare it InOut"


class OutRead(FrontendError):
    """An Out parameter that is read before every path has stored it."""

    code = "out-read"
    template = "kernel `{kernel}` reads its output `{param}` before it is stored"
    label = "read here"
    hint = "declare it InOut, or store it first"


class CarriedValue(FrontendError):
    """A variable that would have two types, or none, after a branch or loop."""

    code = "carried-value"
    template = "`{name}` {problem}"
    label = "expected {expected}, found {found}"
    hint = "a variable keeps one tile type; give it a value before the loop or branch"


class UnknownArgument(FrontendError):
    """A task call with an argument that its kernel does not have, or without one that it has."""

    code = "unknown-argument"
    template = "kernel `{kernel}` {problem}"
    label = "{detail}"
    hint = "{advice}"


class BadHandle(FrontendError):
    """A handle that `after`, `combine` or `sequential` cannot take."""

    code = "bad-handle"
    template = "`{what}` cannot take this"
    label = "{problem}"
    hint = "a handle is what a task call returns; it holds in the block of the call and in those inside it"


class DetachedOtherwise(FrontendError):
    """A `P.otherwise` that continues no conditional."""

    code = "detached-otherwise"
    template = "`P.otherwise` does not directly follow a `P.when`"
    label = "{problem}"
    hint = "put it right behind the body of the `P.when` or `P.otherwise` that it belongs to"


class UnsetSlot(FrontendError):
    """A slot that is read in a workload that never sets it."""

    code = "unset-slot"
    template = "slot {slot} is read and never set"
    label = "read here"
    hint = "set it before in the workload, with `slot_set_u64` or `slot_load_u64`"


class BadTiers(FrontendError):
    """A tier whose kernels or bounds do not fit together."""

    code = "bad-tiers"
    template = "tier `{tier}` cannot be made like this"
    label = "{problem}"
    hint = 'write `tier("name", (kernel, bound), ...)`, bounds ascending; the last may be None'


class CallArgument(FrontendError):
    """A workload that another one calls with arguments that its parameters cannot take."""

    code = "call-argument"
    template = "workload `{workload}` {problem}"
    label = "{detail}"


class UnusedCall(FrontendError):
    """A call of a workload with an array for everything, which looks like a run and is none."""

    code = "unused-call"
    template = "calling workload `{name}` runs nothing: it binds values"
    label = "every parameter has a value"
    hint = "compile it, then call the program: `{name}.compile()({arguments})`"


class NameClash(FrontendError):
    """Two different things of one name in one program."""

    code = "name-clash"
    template = "two different {kind} are called `{name}`"
    label = "second one used here"
    hint = "rename one of them"


class UnknownAxis(FrontendError):
    """An axis or size name that no tensor or parameter of the workload declares."""

    code = "unknown-axis"
    template = "`{name}` is not an axis of workload `{workload}`"
    label = "unknown axis"
    hint = "{advice}"


class BadIndex(FrontendError):
    """An index expression that a tensor cannot take."""

    code = "bad-index"
    template = "`{tensor}` cannot be indexed like this"
    label = "expected {expected}, found {found}"


class WrongTensor(FrontendError):
    """A tensor that is declared without what it needs, or with arguments that disagree."""

    code = "wrong-tensor"
    template = "a tensor cannot be declared like this"
    label = "expected {expected}, found {found}"
    hint = '`Tensor(data=array)`, or `Tensor(shape=(4, "n"), dtype=f32)` without data'


class RankMismatch(FrontendError):
    """A view whose number of dimensions is not the kernel parameter's."""

    code = "rank-mismatch"
    template = "argument `{param}` of kernel `{kernel}` has the wrong number of dimensions"
    label = "expected {expected}, found {found}"


class ArgumentShape(FrontendError):
    """A view that can never fit its kernel parameter."""

    code = "argument-shape"
    template = "argument `{param}` of kernel `{kernel}` does not fit its tile"
    label = "expected {expected}, found {found}"


class ArgumentDType(FrontendError):
    """A view whose element type is not the kernel parameter's."""

    code = "argument-dtype"
    template = "argument `{param}` of kernel `{kernel}` has the wrong element type"
    label = "expected {expected}, found {found}"


class BadBlock(FrontendError):
    """A block of a function builder that is not closed, or a method that closes or continues none."""

    code = "bad-block"
    template = "`{method}` does not fit the blocks that are open"
    label = "expected {expected}, found {found}"


class WrongFunctionKind(FrontendError):
    """A method of a function builder that only functions of the other kind have."""

    code = "wrong-function-kind"
    template = "`{method}` has no meaning in function `{function}`"
    label = "it is for {kind} functions"
    hint = "`.in_core()` functions compute on tiles, `.not_in_core()` functions call them"


class MemrefShape(FrontendError):
    """A memref whose uses do not say how it lies in memory, or disagree about it."""

    code = "memref-shape"
    template = "the shape of memref `{name}` does not follow from its uses"
    label = "expected {expected}, found {found}"
    hint = "give it one: `.memref(name, space, dtype, shape=(rows, cols))`; rows may be None"


class OutsideWorkload(FrontendError):
    """A construct of workloads or kernels that is used outside of one."""

    code = "outside-workload"
    template = "{what} has a meaning only inside a {where}"
    label = "used outside of one"


class ConstantIndexOutside(FrontendError):
    """An index that lies outside its tensor whatever the sizes are."""

    code = "index-outside"
    template = "`{tensor}` is indexed outside dimension {dim}"
    label = "expected an index in [0, {size}), found {found}"


class NotYetSupported(PtoError):
    """A planned feature that this version does not have."""

    code = "not-supported"
    template = "{feature} is not supported by this version"
    label = "{detail}"
    hint = "{advice}"


# --- verifying -----------------------------------------------------------------------


class InvalidIR(VerifyError):
    """A module that no front end should have built."""

    code = "invalid-ir"
    template = "{message}"


# --- schedules -----------------------------------------------------------------------


class BadKey(ScheduleError):
    """A key of a schedule that no task has, that can mean two things, or that is no integer."""

    code = "bad-key"
    template = "{problem}"
    label = "{detail}"
    hint = "{advice}"


class ScheduledPart(ScheduleError):
    """A workload with a schedule of its own inside another one."""

    code = "scheduled-part"
    template = "`{part}` has a schedule, and is part of another workload"
    label = "a program has one schedule"
    hint = "give the schedule to the whole workload"


# --- compiling -----------------------------------------------------------------------


class UnknownTarget(CompileError):
    """A target name that is not registered."""

    code = "unknown-target"
    template = "there is no target `{name}`"
    hint = "{advice}"


class UnsupportedByTarget(CompileError):
    """An instruction or directive that a target refuses."""

    code = "unsupported-by-target"
    template = "target `{target}` does not support {what}"
    label = "{reason}"


class NoCompiler(CompileError):
    """No C++17 compiler on this machine."""

    code = "no-compiler"
    template = "no C++17 compiler was found"
    label = "looked for {tried}"
    hint = "install g++ or clang++, set CXX, or `pip install pto-wsp[compiler]`"


class CompilerFailed(CompileError):
    """The C++ compiler refused generated code."""

    code = "compiler-failed"
    template = "the C++ compiler failed on the generated code:\n{output}"
    label = "command: {command}"
    hint = "the source is kept in {source}"


class CppError(CompileError):
    """C++ of a hand-written kernel that the compiler refuses."""

    code = "cpp-error"
    template = "the C++ of kernel `{kernel}` does not compile"
    label = "{message}"
    hint = "what was compiled is kept in {source}"


class BadCache(CompileError):
    """A cache directory that cannot be trusted."""

    code = "bad-cache"
    template = "the cache directory {path} cannot be used"
    label = "{reason}"
    hint = "set PTO_WSP_CACHE to a directory that only you can write"


class BadLibrary(CompileError):
    """A kernel library that is not what the program was compiled for."""

    code = "bad-library"
    template = "the kernel library {path} cannot be loaded"
    label = "{reason}"


# --- passes --------------------------------------------------------------------------


class UnknownPass(CompileError):
    """A pass name that is not registered."""

    code = "unknown-pass"
    template = "there is no pass `{name}`"
    hint = "{advice}"


class BadPipeline(CompileError):
    """A pipeline of passes that cannot be read."""

    code = "bad-pipeline"
    template = "the pipeline `{text}` cannot be read"
    label = "expected {expected}, found {found}"
    hint = "passes are separated by commas, options stand in braces: `inline,unroll{{factor=4}},dce`"


class CannotInline(CompileError):
    """A call whose callee cannot stand in its place."""

    code = "cannot-inline"
    template = "the call of `{callee}` cannot be inlined"
    label = "{reason}"


class CannotExpand(CompileError):
    """A loop that cannot be taken apart into blocks, or whose kernels cannot work on larger tiles."""

    code = "cannot-expand"
    template = "the loop over `{loop}` cannot be expanded"
    label = "{reason}"


class TilesTooLarge(CompileError):
    """Tiles that are in use at the same time and do not fit the memory of a core."""

    code = "tiles-too-large"
    template = "the tiles of kernel `{kernel}` take {needed} bytes, and a core has {capacity}"
    label = "in use together: {live}"
    hint = "use smaller tiles, or let go of some of these before others are made"


# --- binding and running -------------------------------------------------------------


class UnboundTensor(BindError):
    """A tensor or size without a value in a call of a program."""

    code = "unbound"
    template = "{kind} `{name}` has no value in this call"
    hint = "{advice}"


class UnknownParameter(BindError):
    """A keyword that is no parameter of the program."""

    code = "unknown-parameter"
    template = "program `{program}` has no parameter `{name}`"
    hint = "{advice}"


class WrongValue(BindError):
    """A value that a parameter of the program cannot take."""

    code = "wrong-value"
    template = "`{name}` cannot take this value"
    label = "expected {expected}, found {found}"


class WrongDType(BindError):
    """An array whose element type is not the tensor's."""

    code = "wrong-dtype"
    template = "array `{name}` has the wrong element type"
    label = "expected {expected}, found {found}"


class WrongRank(BindError):
    """An array whose number of dimensions is not the tensor's."""

    code = "wrong-rank"
    template = "array `{name}` has the wrong number of dimensions"
    label = "expected {expected}, found {found}"


class WrongShape(BindError):
    """An array whose size disagrees with the declaration or with another array."""

    code = "wrong-shape"
    template = "dimension {dim} of array `{name}` has the wrong size"
    label = "expected {expected}, found {found}"


class UnusableArray(BindError):
    """An array that the engine cannot work on in place."""

    code = "unusable-array"
    template = "array `{name}` cannot be used as it is"
    label = "{reason}"
    hint = "pass a C-contiguous, aligned, writable array of this machine's byte order, or a slice of one"


class ReadOnlyArray(BindError):
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


class RowOutside(RunError):
    """A row set with an index that names no row of its tensor."""

    code = "row-outside"
    template = "`{indices}` names row {row} of `{tensor}`, which has {size} rows"
    label = "position {position} of `{indices}` holds {row}, expected a row in [0, {size}){where}"


class RowRepeated(RunError):
    """A row set that a task writes and that names a row twice: the result would depend on chance."""

    code = "row-repeated"
    template = "`{tensor}` is written through `{indices}`, which names row {row} twice"
    label = "positions {first} and {second} of `{indices}` both hold {row}{where}"
    hint = "let each task write a row once, or give the rows to different tasks"


class StridedRows(RunError):
    """A row set over rows that do not lie evenly in memory."""

    code = "strided-rows"
    template = "`{tensor}` cannot be indexed by rows: dimension {dim} does not step over those behind it"
    hint = "pass a packed array: `numpy.ascontiguousarray(array)`"


class NoTier(RunError):
    """A size that no tier takes."""

    code = "no-tier"
    template = "no tier of `{tier}` takes size {size}"
    label = "its tiers end at {tiers}"
    hint = "add a tier with a larger bound, or one without (`None`)"


class NegativeAmount(RunError):
    """A task that asks for a negative workspace, or is said to take a negative time."""

    code = "negative-amount"
    template = "the {what} of a task of kernel `{kernel}` is negative"
    label = "expected at least 0, found {found}{where}"


class NoDispatcher(RunError):
    """A key of `DispatchPolicy.dispatch_by` that is the number of no dispatcher."""

    code = "no-dispatcher"
    template = "a task of kernel `{kernel}` is for dispatcher {found}"
    label = "expected one of 0 to {most}{where}"


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
    label = "the first is one of kernel `{kernel}`{where}"
    hint = "this is a fault of PTO-WSP: please report it with the program"


class StridedView(RunError):
    """A view whose innermost dimension does not lie contiguously in memory."""

    code = "strided-view"
    template = "argument `{param}` of kernel `{kernel}` views `{tensor}` with an innermost stride above 1"
    label = "dimension {dim} of `{tensor}` is innermost in the view"
    hint = "keep the tensor's last dimension in the view, or lay the tensor out the other way"


class BadExpression(RunError):
    """A scalar expression without a value."""

    code = "bad-expression"
    template = "an expression has no value: {reason}"


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


class RowsNotKnown(RunError):
    """Row sets that `check="hazards"` cannot compare, since tasks write their indices."""

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


class NestedRun(RunError):
    """A program that is run from inside a run."""

    code = "nested-run"
    template = "a program cannot be run from inside a run"


class RunInterrupted(RunError):
    """A run that could not be finished."""

    code = "run-interrupted"
    template = "the run could not be finished: {reason}"


class EngineFault(RunError):
    """A defect of the engine or of lowering, not of the user's program."""

    code = "engine-fault"
    template = "internal error `{engine_code}`: {details}"
    hint = "please report this with the program that caused it"


# --- planning ------------------------------------------------------------------------


class BadPlanConfig(PlanError):
    """A planner or tier configuration outside its range."""

    code = "bad-plan-config"
    template = "{what} is out of range"
    label = "expected {expected}, found {found}"


class InvalidPlanParams(PlanError):
    """Lengths, sizes or counts that no plan can have (`PlanResult::INVALID_PARAMS`)."""

    code = "invalid-plan-params"
    template = "{what} cannot be planned"
    label = "expected {expected}, found {found}"


class UnsupportedSize(PlanError):
    """A length that no tier covers (`PlanResult::UNSUPPORTED_SIZE`)."""

    code = "unsupported-size"
    template = "no tier covers length {length} of request {request}"
    label = "tiers cover {covered}"
    hint = "extend the TierConfig; zero_length='empty_item' plans requests of length 0"


class PlanBufferOverflow(PlanError):
    """A buffer with too little room (`PlanResult::BUFFER_OVERFLOW`).

    Attributes:
        required: descriptors that the plan has.
    """

    code = "plan-buffer-overflow"
    template = "the buffer has room for {capacity} descriptors, the plan has {required}"
    hint = "allocate get_total_work(...) descriptors, or leave out= away"

    @property
    def required(self) -> int:
        """The number of descriptors that the plan has."""
        return self.fields["required"]  # type: ignore[return-value]


class BadPlanBuffer(PlanError):
    """A buffer that descriptors cannot be written to."""

    code = "bad-plan-buffer"
    template = "the buffer cannot hold descriptors"
    label = "expected {expected}, found {found}"
    hint = "np.empty(count, pto_wsp.planner.WORK_DESCRIPTOR) makes one"


class NotPlanned(PlanError):
    """A run of planned attention before its first plan."""

    code = "not-planned"
    template = "`{name}.run` needs a plan"
    label = "expected a call of `plan` before, found none"
    hint = "call plan(...) with the lengths of the batch; it serves any number of runs"


# --- the command line ----------------------------------------------------------------


class CommandError(PtoError):
    """A command that cannot do what it was asked for."""


class BadOption(CommandError):
    """An option of a command that does not fit the program it is given for."""

    code = "bad-option"
    template = "`{option}` does not fit"
    label = "expected {expected}, found {found}"
    hint = "{advice}"


def catalogue() -> list[type[PtoError]]:
    """Return every error class with a code of its own, in the order of this file."""
    found: list[type[PtoError]] = []
    pending = list(PtoError.__subclasses__())
    while pending:
        cls = pending.pop(0)
        if "code" in cls.__dict__:
            found.append(cls)
        pending = cls.__subclasses__() + pending
    return found
