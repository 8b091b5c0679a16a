"""Graphs: programs with a contract, which states what they provide and what they require."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pto_wsp.errors import ContractBroken, UnknownParameter, WrongValue, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import IN
from pto_wsp.location import caller_location
from pto_wsp.runtime.bound_call import ArrayAccess, BoundCall
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import record

_COMPILE = "compile the workload first: `program = workload.compile()`"


@record
class Provided:
    """A tensor that a graph provides."""

    tensor: str
    after: tuple[str, ...]


@record
class Required:
    """A tensor that a graph requires of another one."""

    tensor: str
    graph: ContractGraph


class GivenArrays:
    """The arrays that launches of graphs were given, as long as these exist."""

    def __init__(self) -> None:
        self._uses: dict[ContractGraph, dict[tuple[int, int], _Uses]] = {}

    def add(self, graph: ContractGraph, accesses: Iterable[ArrayAccess]) -> None:
        """Take note of a launch of a graph."""
        spans = self._uses.setdefault(graph, {})
        for access in accesses:
            found = spans.get(access.span)
            if found is None or found.memory() is None:
                found = spans[access.span] = _Uses(_memory_of(access.array, spans, access.span), set())
            found.tensors.add((access.tensor, access.is_written))

    def of(self, graph: ContractGraph, span: tuple[int, int]) -> set[tuple[str, bool]]:
        """Return the tensors for which launches of a graph were given an array, and whether they write it."""
        found = self._uses.get(graph, {}).get(span)
        return set() if found is None or found.memory() is None else found.tensors


@record
class _Uses:
    """An array by its memory, and the tensors that it was given for."""

    memory: Callable[[], object]
    tensors: set[tuple[str, bool]]


def _memory_of(
    array: np.ndarray, spans: dict[tuple[int, int], _Uses], span: tuple[int, int]
) -> Callable[[], object]:
    """Return a function that returns the owner of the memory, or None when it is free; then forget its span.

    Memory that numpy does not own is kept.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is not None:
        return lambda: array

    def forget(reference: object) -> None:
        if span in spans and spans[span].memory is reference:
            del spans[span]

    return weakref.ref(array, forget)


class ContractGraph:
    """A program with a contract that a session checks when it launches it.

    Attributes:
        program: the program.
        name: of the graph, for messages.
    """

    def __init__(self, program: Program, name: str | None = None) -> None:
        if not isinstance(program, Program):
            expected, found = "a compiled program", type(program).__name__
            raise WrongValue(
                name="program", expected=expected, found=found, hint=_COMPILE, loc=caller_location()
            )
        if name is not None and not isinstance(name, str):
            raise WrongValue(name="name", expected="a text", found=repr(name), loc=caller_location())
        self.program = program
        self.name = program.module.entry if name is None else name
        self._provided: dict[str, Provided] = {}
        self._required: list[Required] = []

    def __repr__(self) -> str:
        required = [required.tensor for required in self._required]
        return f"<graph {self.name}: provides {[*self._provided]}, requires {required}>"

    def provides(self, tensor: str, *, after: str | Sequence[str]) -> ContractGraph:
        """State that a tensor is complete when kernels have run, and return the graph.

        Args:
            tensor: name of a tensor of the program.
            after: the kernels whose tasks write it.

        Raises:
            UnknownParameter: the program has no such tensor.
            ContractBroken: other kernels write it, or one of these does not.
        """
        self._require_tensor(tensor)
        named = (after,) if isinstance(after, str) else tuple(after)
        writers = _writers(self.program, tensor)
        wrong = sorted(writers.symmetric_difference(named))
        if not writers:
            reason, hint = f"no kernel writes `{tensor}`", "provide a tensor that a kernel writes"
            raise ContractBroken(reason=reason, loc=caller_location(), hint=hint)
        if wrong:
            what = "writes" if wrong[0] in writers else "does not write"
            reason = f"`{wrong[0]}` {what} `{tensor}`; expected that {_listed(named)} alone write it"
            hint = f"state the kernels that write it: `after={sorted(writers)}`"
            raise ContractBroken(reason=reason, loc=caller_location(), hint=hint)
        self._provided[tensor] = Provided(tensor, named)
        return self

    def requires(self, tensor: str, *, from_: ContractGraph) -> ContractGraph:
        """State that a tensor is provided by another graph, and return the graph.

        Raises:
            UnknownParameter: the program has no such tensor.
            WrongValue: `from_` is not a graph.
        """
        self._require_tensor(tensor)
        if not isinstance(from_, ContractGraph):
            expected, found = "a graph, as `graph(program)` returns it", type(from_).__name__
            raise WrongValue(name="from_", expected=expected, found=found, loc=caller_location())
        self._required.append(Required(tensor, from_))
        return self

    def _require_tensor(self, tensor: str) -> None:
        names = [t.name for t in self.program.module.entry_workload.tensors if not t.is_local]
        if tensor not in names:
            advice = did_you_mean(tensor, names)
            raise UnknownParameter(program=self.name, name=tensor, advice=advice, loc=caller_location())

    def check_requirements(self, call: BoundCall, given: GivenArrays) -> None:
        """Raise ContractBroken if a required tensor is not one that an earlier launch provides."""
        for required in self._required:
            wanted = next(a.span for a in call.accesses if a.tensor == required.tensor)
            found = given.of(required.graph, wanted)
            if any(tensor in required.graph._provided for tensor, _ in found):
                continue
            provider = required.graph.name
            reason = f"no earlier launch of `{provider}` provides the array of `{required.tensor}`"
            written = sorted(tensor for tensor, is_written in found if is_written)
            hint = f'add `.provides("{written[0]}", after=...)` to `{provider}`' if written else None
            raise ContractBroken(reason=reason, loc=caller_location(), hint=hint)


def _writers(program: Program, tensor: str) -> set[str]:
    """Return the kernels whose tasks write a tensor."""
    module = program.module
    return {
        task.kernel
        for task in w.tasks(module.entry_workload.body)
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True)
        if isinstance(arg, Region) and arg.tensor == tensor and param.role != IN
    }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def graph(program: Program, name: str | None = None) -> ContractGraph:
    """Return a program with a contract: `graph(p).provides("q", after="project").requires("x", from_=g)`.

    Args:
        program: the program.
        name: for messages; by default that of the workload.
    """
    return ContractGraph(program, name)
