"""Variables around kernels and workloads, which must keep the values that were read.

A kernel reads them when it is defined, a workload when it is traced. A program would not notice a later
change, so a change is an error. Arrays and other objects are compared by identity, scalars and containers of
scalars by value, functions, kernels and workloads by their code. A check costs a few ns per variable: a
function that reads them where they are compares all of them by identity first.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from pto_wsp.errors import VariableChanged
from pto_wsp.lang.source import MISSING, FunctionSource, annotation_names, fingerprint
from pto_wsp.location import PACKAGE_DIR
from pto_wsp.support.arrays import shown
from pto_wsp.support.containers import is_plain, plain_copy
from pto_wsp.support.record import record


@runtime_checkable
class Defined(Protocol):
    """A kernel or workload."""

    @property
    def definition(self) -> tuple[object, ...]:
        """What is equal for the same text that is run again, as in a notebook."""
        ...


@record
class Reading:
    """A function with the values of variables around it as they were when it was read.

    Attributes:
        source: the function.
        values: by name.
        event: when that was: the function was `defined`, `read` for a kernel that calls it, or `compiled`.
    """

    source: FunctionSource
    values: Mapping[str, object]
    event: str


def as_run(source: FunctionSource) -> tuple[Reading, Reading]:
    """Return the readings of a function that has just run: its annotations were read before, its body now."""
    annotations = {name: source.names[name] for name in _annotated(source) if name in source.names}
    body = {
        name: value for name, place in _variables(source) if (value := _value(place, name)) is not MISSING
    }
    return Reading(source, annotations, "defined"), Reading(source, body, "compiled")


class Captured:
    """The variables that a program has read.

    Args:
        readings: of its kernels, the functions that these call, and its workloads.
    """

    __slots__ = ("_contents", "_groups")

    def __init__(self, readings: Iterable[Reading] = ()) -> None:
        uses = [use for reading in readings for use in _uses(reading)]
        modules = {id(u.place): u.place for u in uses if isinstance(u.place, dict)}
        self._groups = [_Group(names, [u for u in uses if u.place is names]) for names in modules.values()]
        cells = [use for use in uses if isinstance(use.place, CellType)]
        if cells:
            self._groups.append(_Group({}, cells))
        self._contents = [use for use in uses if use.copy is not MISSING]

    def check(self) -> None:
        """Compare every variable with what was read.

        Raises:
            VariableChanged: one has another value.
        """
        for group in self._groups:
            group.check()
        for use in self._contents:
            if use.value != use.copy:
                raise use.changed(use.copy, use.value)


class _Use:
    """A variable that a function reads: where it is, and the value that was read."""

    __slots__ = ("copy", "name", "place", "reading", "value")

    def __init__(self, reading: Reading, name: str, place: dict[str, Any] | CellType, value: object) -> None:
        self.reading = reading
        self.name = name
        self.place = place
        self.value = value
        is_old = reading.values is reading.source.names
        now = plain_copy(value) if is_plain(value) else MISSING
        self.copy = reading.source.contents.get(name, MISSING) if is_old else now

    def check(self) -> None:
        """Compare the variable with what was read; take an equal value in its place."""
        now = _value(self.place, self.name)
        if now is self.value or now is MISSING:
            return
        if not _is_same(self.value, now):
            raise self.changed(self.value, now)
        self.value = now

    def changed(self, before: object, now: object) -> VariableChanged:
        """Return the error that the variable has another value."""
        expected, found = _shown(before), _shown(now)
        return VariableChanged(
            name=self.name,
            function=self.reading.source.function.__name__,
            event=self.reading.event,
            expected=expected,
            found=found if found != expected else f"another {found}",
            loc=self.reading.source.place_of(self.name),
        )


class _Group:
    """The variables of one module that are read, or all variables in cells."""

    __slots__ = ("_has_same_objects", "_names", "_uses")

    def __init__(self, names: dict[str, Any], uses: Sequence[_Use]) -> None:
        self._names = names
        self._uses = uses
        self._has_same_objects = self._comparison()

    def check(self) -> None:
        """Compare each variable with what was read."""
        try:
            if self._has_same_objects():
                return
        except NameError:  # a variable was deleted: nothing reads another value
            pass
        for use in self._uses:
            use.check()
        self._has_same_objects = self._comparison()

    def _comparison(self) -> Callable[[], bool]:
        """Return a function among the variables: Python reads its globals and cells in a few ns."""
        known = {(u.name, id(u.place), id(u.value)): u for u in self._uses}.values()
        cells = [use.place for use in known if isinstance(use.place, CellType)]
        of_cells = {f"cell_{i}": cell for i, cell in enumerate(cells)}
        code = _comparison_code(tuple(of_cells or (use.name for use in known)), bool(cells))
        closure = tuple(of_cells[name] for name in code.co_freevars)
        return FunctionType(code, self._names, "check", tuple(use.value for use in known), closure)


@lru_cache(maxsize=64)
def _comparison_code(names: tuple[str, ...], are_cells: bool) -> CodeType:
    """Return the code of a function that compares variables with its defaults by identity."""
    values = [f"{max(names, key=len)}_{i}" for i in range(len(names))]  # no variable has such a name
    terms = " and ".join(f"{name} is {value}" for name, value in zip(names, values, strict=True))
    check = f"lambda {', '.join(values)}: {terms}"
    scope: dict[str, Any] = {}
    exec(f"def around({', '.join(names) if are_cells else ''}): return {check}", scope)
    return next(c for c in scope["around"].__code__.co_consts if isinstance(c, CodeType))


def _uses(reading: Reading) -> Iterator[_Use]:
    if reading.source.file.startswith(PACKAGE_DIR):
        return
    for name, place in _variables(reading.source):
        value = reading.values.get(name, MISSING)
        if value is not MISSING and not _is_constant(value):
            yield _Use(reading, name, place, value)


def _variables(source: FunctionSource) -> Iterator[tuple[str, dict[str, Any] | CellType]]:
    """Yield the variables around a function that its body or its annotations read, and where each is."""
    function = source.function
    assert isinstance(function, FunctionType)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    yield from cells.items()
    for name in sorted((_global_names(function.__code__) | _annotated(source)) - cells.keys()):
        if name in source.of_module:
            yield name, function.__globals__


def _annotated(source: FunctionSource) -> set[str]:
    return set() if source.node is None else annotation_names(source.node)


@lru_cache(maxsize=1024)
def _global_names(code: CodeType) -> frozenset[str]:
    found = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _global_names(inner)
    return frozenset(found)


def _value(place: dict[str, Any] | CellType, name: str) -> object:
    """Return what a variable holds now, or MISSING."""
    if isinstance(place, dict):
        return place.get(name, MISSING)
    try:
        return place.cell_contents
    except ValueError:
        return MISSING


def _is_constant(value: object) -> bool:
    """Whether a variable keeps its value as a rule: a module, or a function or class of a library."""
    if isinstance(value, (ModuleType, BuiltinFunctionType)):
        return True
    module = getattr(value, "__module__", None)
    is_callable = isinstance(value, (type, FunctionType))
    return is_callable and isinstance(module, str) and module.split(".")[0] in ("pto_wsp", "numpy", "math")


_SCALARS = (bool, int, float, complex, str, bytes, np.generic, type(None), tuple, frozenset)


def _is_same(a: object, b: object) -> bool:
    """Whether two values mean the same to a kernel or workload."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        return _is_same_function(a, b)
    if isinstance(a, Defined) and isinstance(b, Defined):
        return _is_same(a.definition, b.definition)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    is_value = isinstance(a, _SCALARS) or is_plain(a) or type(a).__module__.startswith("pto_wsp.types")
    return is_value and (a == b or (a != a and b != b))


def _is_same_function(a: FunctionType, b: FunctionType) -> bool:
    """Whether two functions have the same text, and the same values in defaults and closures."""
    if fingerprint(a.__code__) != fingerprint(b.__code__):
        return False
    cells = ([_value(cell, "") for cell in function.__closure__ or ()] for function in (a, b))
    pairs = [p for p in zip(*cells, strict=True) if not isinstance(p[0], FunctionType)]
    return _is_same(a.__defaults__, b.__defaults__) and all(_is_same(x, y) for x, y in pairs)


def _shown(value: object) -> str:
    """Return a value as messages show it: short."""
    kinds = (*_SCALARS, list, dict, set, np.ndarray)
    is_readable = isinstance(value, kinds) or type(value).__module__.startswith("pto_wsp")
    return shown(value) if is_readable else type(value).__name__


NOTHING_CAPTURED = Captured()
"""Of a program that no functions were read for."""
