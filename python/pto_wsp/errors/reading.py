"""Mistakes in kernels and workloads."""

from __future__ import annotations

from pto_wsp.errors.base import FrontendError, PtoError


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


class UnknownMember(UnknownName, AttributeError):
    """A name that an object does not have: `hasattr` is False."""


class VariableChanged(FrontendError):
    """A variable around a kernel or workload that has another value than the one that was read."""

    code = "variable-changed"
    template = "`{name}` has changed since `{function}` was {event}"
    label = "expected {expected}, found {found}"
    hint = "make what changes a parameter, or define the kernel or workload again and compile it"


class UnknownInstruction(FrontendError):
    """A call of a `pto` or `ptoisa` function that does not exist."""

    code = "unknown-instruction"
    template = "`{name}` is not an instruction"
    label = "unknown instruction"
    hint = "{advice}"


class UnknownFunction(UnknownInstruction, AttributeError):
    """An instruction that a module does not have: `hasattr` is False."""


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
    hint = "reduce (`pto.rowsum`), expand (`pto.rowexpand`), reshape or extract an operand"
    hint_of_axis = (
        "reductions of rows such as `pto.rowsum` return [rows, 1], those of columns such as `pto.colsum` "
        "[1, cols]; reduce the other axis"
    )


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


class OutPartlyStored(FrontendError):
    """An Out parameter with elements that no statement of the kernel stores."""

    code = "out-partly-stored"
    template = "kernel `{kernel}` never stores `{param}[{index}]`, an element of its output"
    label = "declared as an output here"
    hint = "store every element of `{param}`, or declare it InOut to keep the rest"


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
    hint = "put it directly after the body of the `P.when` or `P.otherwise` that it belongs to"


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
    hint = "index with an integer, a range of `P.tiles` (in a kernel `pto.tiles`), or a slice of constants"


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
    hint = "an integer as index drops a dimension (`X[i]`), a range keeps it (`X[i : i + 1]`)"


class ArgumentShape(FrontendError):
    """A view that can never fit its kernel parameter."""

    code = "argument-shape"
    template = "argument `{param}` of kernel `{kernel}` does not fit its tile"
    label = "expected {expected}, found {found}"
    hint = "divide the tensor with `P.tiles`, or declare the parameter as `Tensor[dtype, DYN, cols]`"


class ArgumentDType(FrontendError):
    """A view whose element type is not the kernel parameter's."""

    code = "argument-dtype"
    template = "argument `{param}` of kernel `{kernel}` has the wrong element type"
    label = "expected {expected}, found {found}"
    hint = "declare the parameter with the type of the tensor, and convert inside with `pto.cast`"


class BadBlock(FrontendError):
    """A block of a function builder that is not closed, or a method that closes or continues none."""

    code = "bad-block"
    template = "`{method}` does not fit the blocks that are open"
    label = "expected {expected}, found {found}"
    hint = "close blocks in the reverse order of opening them"


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
    hint = "use it inside a function that is decorated with `@{where}`"


class ConstantIndexOutside(FrontendError):
    """An index that lies outside its tensor whatever the sizes are."""

    code = "index-outside"
    template = "`{tensor}` is indexed outside dimension {dim}"
    label = "expected an index in [0, {size}), found {found}"
    hint = "use an index inside the dimension; negative indices do not count from the end"


class NotYetSupported(PtoError):
    """A planned feature that this version does not have."""

    code = "not-supported"
    template = "{feature} is not supported by this version"
    label = "{detail}"
    hint = "{advice}"
