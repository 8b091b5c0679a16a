"""Programs: what `Workload.compile` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from pto_wsp.errors import (
    NameClash,
    NotYetSupported,
    UnboundTensor,
    UnknownParameter,
    UnusableArray,
    WrongRank,
    WrongShape,
    WrongValue,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import I64_MAX, I64_MIN, Value
from pto_wsp.ir.verify import verify
from pto_wsp.lang.ragged import Ragged
from pto_wsp.lang.tensor import Tensor
from pto_wsp.lang.tracing import Traced
from pto_wsp.runtime.engine import make_runner
from pto_wsp.runtime.outcome import Figures
from pto_wsp.runtime.stats import RunStats
from pto_wsp.runtime.trace import Trace
from pto_wsp.targets import registry
from pto_wsp.types.dtype import DType

F32_END = 2.0**128 - 2.0**103
"""The smallest number that f32 rounds to infinity."""

RUN_OPTIONS = ("workers", "trace", "check")


def compile_program(traced: Traced, target: str = "cpu") -> Program:
    """Compile a traced workload.

    Args:
        traced: its module and the values that its tensors and sizes have unless a call gives others.
        target: name of a registered target.

    Raises:
        UnknownTarget, UnsupportedByTarget: the target does not exist, or refuses something in the module.
        NoCompiler, CompilerFailed, BadCache: the kernels could not be built.
    """
    for param in traced.module.entry_workload.params:
        if param.name in RUN_OPTIONS:
            raise NameClash(kind="run options and parameters", name=param.name, loc=param.loc)
    return Program(verify(traced.module), traced.defaults, target, traced.packed)


class Program:
    """A compiled workload. Calling it binds arrays, checks them and runs; it is safe to share by threads.

    Arrays are used in place: numpy arrays whose element type, rank and sizes are those of the workload's
    tensors, packed if a tensor's layout says so. Sizes are taken from them. Nothing is compiled again for
    other sizes.

    Attributes:
        module: the IR.
        trace: the record of the last run with `trace=True`, or None.
    """

    def __init__(
        self,
        module: Module,
        defaults: Mapping[str, object],
        target: str,
        packed: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.trace: Trace | None = None
        self._defaults = dict(defaults)
        self._packed = packed
        workload = module.entry_workload
        self._name = workload.name
        self._tensors = tuple(t.name for t in workload.tensors)
        self._raggeds = workload.raggeds
        hidden = {name for ragged in self._raggeds for name in (ragged.offsets, ragged.count)}
        self._params = {p.name: p for p in workload.params if p.name not in hidden}
        self._symbols = workload.symbols
        self._runner = make_runner(module, registry.get(target))
        self._unreported = (self._runner.compiles, self._runner.compile_ms)
        self._last: tuple[Figures, int, float] | None = None

    def __repr__(self) -> str:
        return f"<Program {self._name}({', '.join(self._params)})>"

    @property
    def stats(self) -> RunStats | None:
        """Figures of the last run, or None before the first."""
        if self._last is None:
            return None
        figures, compiles, compile_ms = self._last
        counters = dict(figures.counters)
        return RunStats(figures.tasks, figures.workers, figures.run_ns / 1e6, compiles, compile_ms, counters)

    def run(
        self,
        *unnamed: object,
        workers: int | None = None,
        trace: bool = False,
        check: str | None = None,
        **values: Any,
    ) -> None:
        """Bind, check and run; return when every task is done.

        Args:
            unnamed: refused: values have names.
            workers: threads to use; all cores by default. Results do not depend on it.
            trace: record every task's start, end and worker in `self.trace`.
            check: not supported yet.
            values: an array per tensor, a number per scalar and per size that no array decides.

        Raises:
            UnboundTensor, UnknownParameter, WrongValue, WrongDType, WrongRank, WrongShape, UnusableArray,
            ReadOnlyArray, OverlappingArrays: the values do not fit; nothing has run.
            RegionOutside, ViewShape, BadExpression: a region or size is wrong; nothing has run.
            KernelFailed: a check inside a kernel failed; earlier tasks have run.
        """
        if unnamed:
            expected = "values by name: " + ", ".join(f"{name}=..." for name in self._params)
            raise WrongValue(name="argument 1", expected=expected, found="a value without a name")
        if check is not None:
            raise NotYetSupported(feature="check=", detail="", advice="hazards are tracked in every run")
        arrays, scalars = self._bind(values)
        if not isinstance(trace, (bool, np.bool_)):
            raise WrongValue(name="trace", expected="True or False", found=repr(trace))
        compiles, compile_ms = self._unreported
        figures, self.trace = self._runner.run(arrays, scalars, _worker_count(workers), bool(trace))
        self._unreported = (0, 0.0)
        self._last = (figures, compiles, compile_ms)

    __call__ = run

    def _bind(self, values: Mapping[str, Any]) -> tuple[list[np.ndarray], list[Value | None]]:
        if not values.keys() <= self._params.keys():
            name = next(iter(values.keys() - self._params.keys()))
            raise UnknownParameter(program=self._name, name=name, advice=did_you_mean(name, self._params))
        if self._raggeds:
            values = {**values, **self._ragged_values(values)}
        arrays = [self._array(name, values) for name in self._tensors]
        return arrays, [self._scalar(param, values) for param in self._symbols]

    def _ragged_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the offsets of every ragged axis, and the sizes that follow from their numbers of rows."""
        found: dict[str, Any] = {}
        for ragged in self._raggeds:
            value = values.get(ragged.name, self._defaults.get(ragged.name))
            if value is None:
                advice = f"call the program with {ragged.name}=Ragged.lengths(array)"
                raise UnboundTensor(kind="ragged axis", name=ragged.name, advice=advice)
            if not isinstance(value, Ragged):
                expected = "Ragged.lengths(array) or Ragged.indptr(array)"
                raise WrongValue(name=ragged.name, expected=expected, found=type(value).__name__)
            rows = len(value.offsets) - 1
            known = found.get(ragged.outer, values.get(ragged.outer))
            if known is not None and known != rows:
                expected = f"{ragged.outer} = {known}"
                raise WrongShape(name=ragged.name, dim=0, expected=expected, found=rows, loc=ragged.loc)
            found |= {ragged.outer: rows, ragged.offsets: value.offsets}
        return found

    def _array(self, name: str, values: Mapping[str, Any]) -> np.ndarray:
        value = values.get(name)
        if value is None:
            value = self._defaults.get(name)
        if name in self._packed and isinstance(value, np.ndarray):
            _require_packed(self._params[name], self._packed[name], value)
        if type(value) is np.ndarray:  # first: numpy loads `np.ma` when it is asked for it, in 15 ms
            return value
        if isinstance(value, np.ndarray):
            if isinstance(value, np.ma.MaskedArray):
                reason = "it is a masked array, and tasks would not see its mask"
                raise UnusableArray(name=name, reason=reason, loc=self._params[name].loc)
            return value
        if value is None:
            raise UnboundTensor(kind="tensor", name=name, advice=f"call the program with {name}=array")
        if hasattr(value, "__dlpack__"):
            raise NotYetSupported(
                feature=f"an array of type {type(value).__name__}", detail="", advice="pass a numpy array"
            )
        raise WrongValue(name=name, expected="a numpy array", found=type(value).__name__)

    def _scalar(self, param: w.SizeParam | w.ScalarParam, values: Mapping[str, Any]) -> int | float | None:
        value = values.get(param.name, self._defaults.get(param.name))
        if isinstance(param, w.SizeParam):
            value = param.default if value is None else value
            return None if value is None else _integer(param.name, value, 0, I64_MAX)
        if value is None:
            raise UnboundTensor(
                kind="scalar", name=param.name, advice=f"call the program with {param.name}=number"
            )
        return _number(param.name, value, param.type.dtype)

    def dump(self) -> str:
        """Return the IR as `.pto` text."""
        return str(self.module)

    def reschedule(self, *_: object, **__: object) -> NoReturn:
        """Refused: schedules are not supported yet."""
        raise _later("reschedule")

    def save(self, *_: object, **__: object) -> NoReturn:
        """Refused: saving programs is not supported yet."""
        raise _later("save")

    @classmethod
    def load(cls, *_: object, **__: object) -> NoReturn:
        """Refused: loading programs is not supported yet."""
        raise _later("load")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("set_symbol_"):
            raise _later(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _require_packed(param: w.WorkloadParam, tensor: Tensor, array: np.ndarray) -> None:
    """Refuse an array of another shape than that which stores `tensor`, with how to pack it."""
    wanted = tensor.stored.dims
    pairs = enumerate(zip(wanted, array.shape, strict=False))
    wrong = [dim for dim, (size, found) in pairs if isinstance(size, int) and size != found]
    if array.ndim == len(wanted) and not wrong:
        return
    of = f"({tensor.layout} stores {_dims(tensor.dims)} as {_dims(wanted)})"
    hint = f"pack it once, before the first run: `{tensor.layout}.pack(array)`"
    if array.ndim != len(wanted):
        expected = f"{len(wanted)} {of}"
        raise WrongRank(name=param.name, expected=expected, found=array.ndim, loc=param.loc, hint=hint)
    dim = wrong[0]
    expected, found = f"{wanted[dim]} {of}", array.shape[dim]
    raise WrongShape(name=param.name, dim=dim, expected=expected, found=found, loc=param.loc, hint=hint)


def _dims(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _later(name: str) -> NotYetSupported:
    return NotYetSupported(feature=f"Program.{name}", detail="", advice="")


def _worker_count(workers: int | None) -> int:
    return 0 if workers is None else _integer("workers", workers, 1, 1024)


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise WrongValue(name=name, expected="an integer", found=type(value).__name__)
    if not low <= value <= high:
        raise WrongValue(name=name, expected=f"an integer in [{low}, {high}]", found=_shown(value))
    return int(value)


def _shown(value: float | np.number) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return str(value)


def _number(name: str, value: object, dtype: DType) -> int | float:
    if not dtype.is_float:
        bits = dtype.itemsize * 8
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.kind == "i" else (0, 2**bits - 1)
        if dtype.kind == "b":
            return int(bool(value))
        return _integer(name, value, max(low, I64_MIN), min(high, I64_MAX))
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise WrongValue(name=name, expected="a number", found=type(value).__name__)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if F32_END <= abs(number) and not (isinstance(value, (float, np.floating)) and math.isinf(value)):
        raise WrongValue(name=name, expected="a number that f32 can hold", found=_shown(value))
    return number
