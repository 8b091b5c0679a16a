"""`PTOModule`: functions of one program, built one after another."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pto_wsp.analysis.buffers import BufferUse, buffer_use
from pto_wsp.builder.callees import Function, wrong_kind
from pto_wsp.errors import BadOperand, NameClash, UnknownKernel, did_you_mean
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.lang.compiling import Program, compile_traced
from pto_wsp.lang.workload.build_module import Traced
from pto_wsp.location import Location, caller_location
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.support.record import replace


class PTOModule:
    """Functions with one entry: the first that was added, unless another is chosen.

    Two modules are equal if they print the same `.pto` text; a module equals its IR.
    """

    def __init__(self, name: str = "module") -> None:
        self.name = name
        self._functions: dict[str, Function] = {}
        self._entry = ""

    def __repr__(self) -> str:
        return f"<PTOModule {self.name}: {', '.join(self._functions) or 'empty'}>"

    def __str__(self) -> str:
        return str(self.ir)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PTOModule):
            return self.ir == other.ir
        return self.ir == other if isinstance(other, Module) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def ir(self) -> Module:
        """The module in the IR: kernels, then workloads, each in the order in which they were added."""
        functions = self.get_all_functions()
        kernels = tuple(f for f in functions if isinstance(f, KernelFunction))
        workloads = tuple(f for f in functions if isinstance(f, WorkloadFunction))
        return Module(self.name, kernels, workloads, self._entry)

    def add_function(self, function: Function) -> Function:
        """Add a function that a builder made.

        Raises:
            NameClash: another function has its name.
        """
        if not isinstance(function, (KernelFunction, WorkloadFunction)):
            expected, found = "what `.build()` returns", type(function).__name__
            raise BadOperand(op="add_function", expected=expected, found=found, loc=caller_location())
        known = self._functions.setdefault(function.name, function)
        if known != function:
            notes = [("the first one", known.loc)]
            raise NameClash(kind="functions", name=function.name, loc=function.loc, notes=notes)
        self._entry = self._entry or function.name
        return function

    def import_function(self, function: Function) -> Function:
        """Add a function of another module; what it calls has to be imported too."""
        entry = self._entry
        self.add_function(function)
        self._entry = entry
        return function

    def has_function(self, name: str) -> bool:
        """Whether there is a function of a name."""
        return name in self._functions

    def get_function(self, name: str) -> Function:
        """Return the function of a name.

        Raises:
            UnknownKernel: there is none.
        """
        if name not in self._functions:
            advice = did_you_mean(name, self._functions)
            raise UnknownKernel(name=name, advice=advice, loc=caller_location())
        return self._functions[name]

    @property
    def functions(self) -> Mapping[str, Function]:
        """The functions by their names, in the order in which they were added; cannot be changed."""
        return MappingProxyType(self._functions)

    def get_all_functions(self) -> tuple[Function, ...]:
        """Return the functions, in the order in which they were added."""
        return tuple(self._functions.values())

    def get_function_names(self) -> tuple[str, ...]:
        """Return the names of the functions, in the order in which they were added."""
        return tuple(self._functions)

    def set_entry(self, name: str) -> None:
        """Choose the function that a program runs.

        Raises:
            UnknownKernel: there is none of that name.
        """
        self._entry = self.get_function(name).name

    def get_buffer_analysis(self, name: str) -> BufferUse:
        """Return what the tiles of an InCore function take, on their own and where they share memory.

        Raises:
            UnknownKernel: there is no function of that name.
            WrongFunctionKind: it is an Orchestration, which has no tiles.
        """
        function = self.get_function(name)
        if isinstance(function, WorkloadFunction):
            raise wrong_kind("get_buffer_analysis", name, "InCore", caller_location() or Location("", 0))
        return buffer_use(inline_calls(self.ir).kernel(name))

    def get_buffer_size(self, name: str) -> tuple[int, int]:
        """Return the bytes of an InCore function's tiles: of all, and where they share memory."""
        found = self.get_buffer_analysis(name)
        return found.separate, found.shared

    def compile(self, target: str = "cpu", entry: str | None = None) -> Program:
        """Compile for a target; needs no data and no sizes.

        Args:
            target: where the program runs.
            entry: the function that it runs: an Orchestration, or an InCore function as one task. The
                module's own without it.

        Raises:
            UnknownKernel: there is no such function.
            CompileError: the target is unknown, or cannot build it.
        """
        name = self._entry if entry is None else self.get_function(entry).name
        return compile_traced(Traced(verify(replace(self.ir, entry=name)), {}), target)
