"""`@kernel`: a function on tiles, read from its source."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, ClassVar, Literal, TypeVar, overload
from weakref import WeakSet

from pto_wsp.errors import NameClash, NoSource, UnknownKernel, UnsupportedSyntax, WrongValue, did_you_mean
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Var
from pto_wsp.lang.captured import Reading
from pto_wsp.lang.kernel.builder import Builder
from pto_wsp.lang.kernel.copy_elimination import remove_copies
from pto_wsp.lang.kernel.declarations import Amount, KernelOptions, KernelParam
from pto_wsp.lang.kernel.early_exit import without_leaving
from pto_wsp.lang.kernel.inlining import BodyReader
from pto_wsp.lang.kernel.native_kernel import CppOptions, PathText, native_function, read_native
from pto_wsp.lang.kernel.outputs import check_outputs
from pto_wsp.lang.kernel.ptoisa_body import InstructionReader, check_written
from pto_wsp.lang.kernel.signature import concrete_param, read_signature, specialised_params
from pto_wsp.lang.kernel.stated_cost import CostParts, Part
from pto_wsp.lang.kernel.statements import StatementReader
from pto_wsp.lang.kernel.values import Constant, ScalarValue, Value
from pto_wsp.lang.kernel.view_index import whole_view
from pto_wsp.lang.source import FunctionSource, identifier, read_function
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.tasks import Handle, TaskArguments
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import replace
from pto_wsp.types.tile import ScalarType, ViewType

C = TypeVar("C", bound=Callable[..., object])


class Kernel:
    """A kernel: arithmetic on tiles, on one core.

    In a workload `k[coordinates](param=view_or_scalar, ...)` makes a task of it.

    Attributes:
        name: the function's name, or the one that it declares, with `_` for what identifiers cannot have.
        params: its parameters.
        declaration: its options, such as workspace and cost.
    """

    _reader: ClassVar[type[StatementReader]] = BodyReader

    def __init__(self, source: FunctionSource, declaration: KernelOptions, cpp: CppOptions) -> None:
        if source.node is None:
            raise NoSource(name=source.function.__name__, loc=source.loc)
        self._source = source
        self.name = source.node.name if declaration.name is None else identifier(str(declaration.name))
        self.params: tuple[KernelParam, ...] = read_signature(source)
        has_body = not _is_declaration(source.node)
        self._native = read_native(source, self.params, cpp, has_body)
        declaration.check(source.node.name, self._native is not None or not has_body, self.loc)
        self.declaration = declaration
        self._functions: dict[object, KernelFunction] = {}
        self._inlined: dict[object, Reading] = {}
        self._cost: Callable[..., object] | None = None
        self.__doc__ = source.function.__doc__
        self.__name__ = self.name
        if not self.is_generic:
            self.specialise({}, {})
        _register(self)

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(p.name for p in self.params)})>"

    @property
    def is_generic(self) -> bool:
        """Whether the kernel is compiled per element type, rank or constant that it is used with."""
        return any(p.is_generic for p in self.params)

    @property
    def loc(self) -> Location:
        """Where the kernel is defined."""
        return self._source.loc

    @property
    def identity(self) -> object:
        """What is the same for a function that is defined again, as in a notebook.

        Functions made by functions are always different.
        """
        function = self._source.function
        is_nested = "<locals>" in function.__qualname__
        return self if is_nested else (function.__module__, function.__qualname__)

    @property
    def definition(self) -> tuple[object, ...]:
        """What is equal for a kernel of the same text."""
        options = self.declaration
        native = None if self._native is None else (self._native.source, self._native.includes)
        stated = options.workspace, options.cost, options.core, options.block_dim, self._cost
        return self._source.function, *stated, native

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The kernel's function and those that it calls, with the values of the variables around them."""
        return Reading(self._source, self._source.names, "defined"), *self._inlined.values()

    def concrete(self, constants: Mapping[str, object], loc: Location | None) -> tuple[KernelParam, ...]:
        """Return the parameters for the values of constants, for a task at `loc`: none is a template.

        Raises:
            BadAnnotation: these values give sizes or an element type that a parameter cannot have.
        """
        return tuple(concrete_param(self._source, param, constants, loc) for param in self.params)

    @overload
    def cost(self, function: C) -> C: ...

    @overload
    def cost(self, *, compute: Part, memory: Part, total: Part = max) -> None: ...

    def cost(
        self,
        function: C | None = None,
        *,
        compute: Part | None = None,
        memory: Part | None = None,
        total: Part = max,
    ) -> C | None:
        """State what a call of the kernel costs on a simulated device: a decorator, or parts.

        Args:
            function: takes views and scalars of the kernel by their names, those that it needs. A view has
                `.shape`, `.rows` and `.cols`, a scalar is its number. It returns cycles of the device.
            compute: in place of `function`: returns the cycles of arithmetic.
            memory: together with `compute`: returns the cycles of transfers.
            total: returns the cycles of both parts. They overlap by default; `lambda c, m: c + m` adds them.

        Returns:
            The function, or None for parts.

        Raises:
            WrongValue: it is not a function of parameters of the kernel, or a part is missing.
        """
        stated: Callable[..., object] | None = function
        if compute is not None or memory is not None:
            self._require_parts(function, compute, memory, total)
            assert compute is not None and memory is not None
            stated = CostParts(compute, memory, total)
        else:
            self._require_cost("cost", function)
        self._cost = stated
        self._functions.clear()
        if not self.is_generic:
            self.specialise({}, {})
        return function

    def _require_parts(self, function: object, compute: object, memory: object, total: object) -> None:
        if function is not None or not callable(total):
            name, found = ("cost", "both") if function is not None else ("total", repr(total))
            expected = "a function, or its parts" if function is not None else "a function of two numbers"
            raise WrongValue(name=name, expected=expected, found=found, loc=caller_location())
        self._require_cost("compute", compute)
        self._require_cost("memory", memory)

    def _require_cost(self, name: str, function: object) -> None:
        """Refuse what is not a function of parameters of the kernel."""
        known = [param.name for param in self.params]
        try:
            found = inspect.signature(function).parameters if callable(function) else None
        except ValueError:  # a function of C, such as `max`, may have none
            found = None
        if found is None or not set(found) <= set(known):
            expected = f"a function of some of {', '.join(known)}"
            shown = repr(function) if found is None else f"one of {', '.join(found)}"
            raise WrongValue(name=name, expected=expected, found=shown, loc=caller_location())

    def specialise(self, views: Mapping[str, ViewType], constants: Mapping[str, object]) -> KernelFunction:
        """Return the IR of the kernel.

        Args:
            views: the type of every bare `Tensor` parameter.
            constants: the value of every `Constexpr` parameter.

        Raises:
            FrontendError: something in the body has no meaning in a kernel.
        """
        key = (tuple(views.items()), tuple((n, type(v), v) for n, v in constants.items()))
        if key not in self._functions:
            self._functions[key] = self._read(views, constants)
        return self._functions[key]

    def _read(self, views: Mapping[str, ViewType], constants: Mapping[str, object]) -> KernelFunction:
        node = self._source.node
        assert node is not None
        params = specialised_params(self.concrete(constants, None), views)
        name = _specialised_name(self.name, views, constants)
        if self._native is not None:
            return self._declared(native_function(name, params, self._native, constants, self.loc))
        if _is_declaration(node):
            return self._declared(KernelFunction(name, params, loc=self.loc))
        env: dict[str, Value] = {n: Constant(v) for n, v in constants.items()}
        for param in params:
            if isinstance(param.type, ScalarType):
                env[param.name] = ScalarValue(Var(param.name, param.type.dtype))
            else:
                env[param.name] = whole_view(param)
        builder = Builder(params, self.declaration.block_dim)
        source = without_leaving(self._source)
        assert source.node is not None
        self._reader(source, builder, env).statements(source.node.body)
        for inlined in builder.inlined:
            self._inlined.setdefault(inlined.function, Reading(inlined, inlined.names, "read"))
        function = KernelFunction(
            name,
            params,
            tuple(builder.tiles.items()),
            tuple(builder.scalars.items()),
            builder.statements(),
            self.loc,
        )
        return self._declared(self._checked(function))

    def _checked(self, function: KernelFunction) -> KernelFunction:
        check_outputs(function)
        return remove_copies(function)

    def _declared(self, function: KernelFunction) -> KernelFunction:
        declared = self.declaration
        return replace(function, unit=declared.core, block_dim=declared.block_dim, cost=self._cost)

    def __getitem__(self, keys: object) -> TaskCall:
        """Give the coordinates of a task, which reports and traces name it by."""
        context.current(f"kernel `{self.name}`")
        return TaskCall(self, keys if isinstance(keys, tuple) else (keys,))

    __iter__ = None

    def __call__(self, *args: object, **kwargs: object) -> Handle:
        """Make a task without coordinates."""
        return TaskCall(self, ())(*args, **kwargs)


class PtoisaKernel(Kernel):
    """A kernel that is written as instructions on declared tiles."""

    _reader = InstructionReader

    def _checked(self, function: KernelFunction) -> KernelFunction:
        check_written(function)
        check_outputs(function)
        return function


_REGISTERED: dict[str, WeakSet[Kernel]] = {}


def _register(kernel: Kernel) -> None:
    """Make a kernel that declares a name known by it, for as long as it lives.

    The same function defined again, as in a notebook, replaces the earlier one.
    """
    name = kernel.declaration.name
    if name is None:
        return
    known = _REGISTERED.setdefault(name, WeakSet())
    for other in [k for k in known if k.identity == kernel.identity]:
        known.discard(other)
    known.add(kernel)


def registered_kernels() -> dict[str, Kernel]:
    """Return the kernels declared with a name, by name.

    Raises:
        NameClash: two kernels have one name.
    """
    return {name: lookup_kernel(name) for name in sorted(_REGISTERED) if _REGISTERED[name]}


def lookup_kernel(name: str) -> Kernel:
    """Return the kernel that was declared with `@kernel(name="...")`.

    Raises:
        UnknownKernel: there is none.
        NameClash: there are several.
    """
    found = sorted(_REGISTERED.get(name, ()), key=lambda kernel: str(kernel.loc))
    if not found:
        known = [other for other, kernels in _REGISTERED.items() if kernels]
        raise UnknownKernel(name=name, advice=did_you_mean(name, known), loc=caller_location())
    if len(found) > 1:
        notes = [(f"`{kernel.name}` is declared here", kernel.loc) for kernel in found]
        raise NameClash(kind="kernels", name=name, loc=caller_location(), notes=notes)
    return found[0]


class TaskCall:
    """A kernel with the coordinates of a task."""

    def __init__(self, kernel: Kernel, keys: tuple[object, ...]) -> None:
        self._kernel = kernel
        self._keys = keys

    def __call__(self, *args: object, **kwargs: object) -> Handle:
        """Make the task: every parameter of the kernel is given a view, a scalar or a constant.

        `after=[handle, ...]` names earlier tasks that it waits for, besides those its data depends on.
        """
        return TaskArguments(self._keys, args, kwargs, caller_location()).record(self._kernel)


@overload
def kernel(function: Callable[..., None], /) -> Kernel: ...
@overload
def kernel(
    *,
    cpp_src: str | None = None,
    cpp_body_path: PathText | None = None,
    cpp_tu_path: PathText | None = None,
    cpp_includes: Sequence[str] = (),
    reference: Callable[..., object] | None = None,
    targets: Sequence[str] = (),
    workspace: Amount | None = None,
    core: Literal["any", "vector", "cube", "mixed"] = "any",
    block_dim: int = 1,
    cost: Amount | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., None]], Kernel]: ...
def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    cpp_src: str | None = None,
    cpp_body_path: PathText | None = None,
    cpp_tu_path: PathText | None = None,
    cpp_includes: Sequence[str] = (),
    reference: Callable[..., object] | None = None,
    targets: Sequence[str] = (),
    workspace: Amount | None = None,
    core: str = "any",
    block_dim: int = 1,
    cost: Amount | None = None,
    name: str | None = None,
) -> Any:
    """Declare a kernel: a function on tiles, parsed from its source text or written in C++.

    Args:
        function: the function. Its annotations give its parameters; the body of a kernel in C++ is `...`.
        cpp_src: the body as C++ text: its parameters and `context` are in scope under their names.
        cpp_body_path: a file with such a text, relative to the file of the kernel.
        cpp_tu_path: a file with a translation unit, which defines a function of the kernel's name that takes
            its parameters in order and a `const TaskContext&`.
        cpp_includes: headers of the C++, `"mine.hpp"` or `"<cmath>"`.
        reference: what a kernel in C++ means: a numpy function of the same parameters that writes outputs in
            place. The target `interp` runs it.
        targets: names of the targets that the C++ is written for, `("ascend_a2a3",)`. Other targets refuse
            the kernel. By default the C++ is for targets that run kernels on a CPU.
        workspace: bytes of memory that a task of a kernel in C++ gets as `context.workspace`: a function of
            the task's arguments, `p.n` for a scalar and `p.x.rows` for an extent of a view.
        core: the kind of core that the kernel wants. Each core of a CPU is of every kind.
        block_dim: calls that make one task; each works on the part that `pto.block_idx()` (in C++
            `context.block_idx`) selects.
        cost: estimated run time of a task in ns, a function as `workspace` is.
        name: what `lookup_kernel` finds the kernel by, and what programs and traces call it; in `.pto` text,
            `_` replaces what identifiers cannot have. By default the function's name.

    Raises:
        NoSource: the source text is not available.
        BadKernelOption: arguments that do not fit each other or the function.
        FrontendError: the function has parameters or statements that have no meaning in a kernel.

    Example:
        `@kernel` before `def scale(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]): pto.store(y, x * 2)`.
    """
    frame = sys._getframe(1)
    cpp = CppOptions(cpp_src, cpp_body_path, cpp_tu_path, cpp_includes, reference, targets)
    declaration = KernelOptions(workspace, core, block_dim, cost, name)

    def make(inner: object) -> Kernel:
        return Kernel(read_function(_plain(inner), frame), declaration, cpp)

    return make if function is None else make(function)


@overload
def ptoisa_kernel(function: Callable[..., None], /) -> Kernel: ...
@overload
def ptoisa_kernel(
    *,
    core: Literal["any", "vector", "cube", "mixed"] = "any",
    block_dim: int = 1,
    cost: Amount | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., None]], Kernel]: ...
def ptoisa_kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    core: str = "any",
    block_dim: int = 1,
    cost: Amount | None = None,
    name: str | None = None,
) -> Any:
    """Declare a kernel whose body calls instructions, such as `ptoisa.TADD(dst, a, b)`.

    Loops, branches and scalars are those of `@kernel`, and so is the IR that it becomes.

    Args:
        function: the function.
        core: the kind of core that it wants, as in `kernel`.
        block_dim: calls that make one task, as in `kernel`.
        cost: estimated run time of a task in ns, as in `kernel`.
        name: what `lookup_kernel` finds the kernel by.

    Raises:
        NoSource: the source text is not available.
        FrontendError: the function has parameters or statements that have no meaning in a kernel.
    """
    frame = sys._getframe(1)
    declaration = KernelOptions(None, core, block_dim, cost, name)

    def make(inner: object) -> Kernel:
        return PtoisaKernel(read_function(_plain(inner), frame), declaration, CppOptions())

    return make if function is None else make(function)


def _plain(function: object) -> FunctionType:
    if not isinstance(function, FunctionType):
        raise UnsupportedSyntax(
            construct=f"`@kernel` of a {type(function).__name__}",
            where="program",
            detail="expected a function",
            advice="decorate a function with `@kernel`",
            loc=caller_location(),
        )
    return function


def _is_declaration(node: ast.FunctionDef) -> bool:
    body = [s.value for s in node.body if isinstance(s, ast.Expr)]
    constants = [e.value for e in body if isinstance(e, ast.Constant)]
    has_doc = constants[:1] != [] and isinstance(constants[0], str)
    return len(body) == len(node.body) == len(constants) and constants[has_doc:] == [...]


def _specialised_name(name: str, views: Mapping[str, ViewType], constants: Mapping[str, object]) -> str:
    parts = [name]
    parts += [f"{v.dtype}x{len(v.dims or ())}" for v in views.values()]
    parts += [_constant_name(name, value) for name, value in constants.items() if value is not False]
    return "_".join(parts)


def _constant_name(name: str, value: object) -> str:
    """Return `packed` for the flag `IS_PACKED=True`, and the value of any other constant."""
    if value is True:
        return name.lower().removeprefix("is_").removeprefix("has_")
    return "".join(c if c.isalnum() else "_" for c in str(value))
