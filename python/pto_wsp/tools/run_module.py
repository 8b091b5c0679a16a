"""`pto run`: from a module and files to files."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from pto_wsp.analysis.bounding import extent_needed
from pto_wsp.errors import BadOption, PtoError, UnboundTensor, UnknownParameter, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value, Var, walk
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.memory import empty
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.tools.files import PIPE, read_array, read_module, require_writable, write_array
from pto_wsp.types.dtype import b1
from pto_wsp.types.tile import TileType

MAX_SHOWN = 40
"""Characters of a value that an error shows."""


def run(args: Namespace) -> None:
    """Run the entry of a module on the arrays of files, and write what it has written."""
    module = with_entry(read_module(args.file), args.entry)
    names = [kernel.name for kernel in module.kernels]
    kernel = module.kernel(module.entry) if module.entry in names else None
    program = compile_module(module, args.target, args.device)
    workload = inline_calls(with_entry_workload(module)).entry_workload
    values = _Values(workload, kernel, pairs("--set", args.set), pairs("--input", args.input))
    outputs = pairs("--output", args.output)
    values.require(outputs, program.module.written)
    arrays = values.arrays(program.module.written)
    options: dict[str, Any] = {} if args.workers is None else {"workers": args.workers}
    options |= {"trace": "full"} if args.advise else {}
    program(**values.given, **arrays, **options)
    for name, path in outputs.items():
        write_array(arrays[name], path)
    if PIPE not in outputs.values():
        _report(program, arrays, outputs, args.stats)
    advice = str(program.advise()) if args.advise else ""
    if advice:
        print(advice, file=sys.stderr if PIPE in outputs.values() else sys.stdout)


def with_entry(module: Module, entry: str | None) -> Module:
    """Return a module with an entry: that of its name, its own, or its only function.

    Raises:
        BadOption: there is no such function, or it is not clear which.
    """
    names = [f.name for f in (*module.kernels, *module.workloads)]
    if not names:
        raise BadOption(option="FILE", expected="a file with functions", found="none", advice="")
    last = [workload.name for workload in module.workloads] or names
    found = entry or module.entry or (last[0] if len(last) == 1 else "")
    if found not in names:
        what = "the name of a function" if found else "one of " + ", ".join(f"`{name}`" for name in names)
        advice = did_you_mean(found, names) if found else ""
        raise BadOption(
            option="--entry", expected=what, found=f"`{found}`" if found else "none", advice=advice
        )
    return replace(module, entry=found)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the values of options `name=value` by name.

    Raises:
        BadOption: a text is not such a pair, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise BadOption(option=option, expected="name=value", found=f"`{text}`", advice="")
        if name in found:
            raise BadOption(option=option, expected="each name once", found=f"`{name}` twice", advice="")
        found[name] = value
    return found


class _Values:
    """What a run is given, as options say.

    Attributes:
        given: values of a call, without the arrays that are made for it.
    """

    def __init__(
        self,
        workload: w.WorkloadFunction,
        kernel: KernelFunction | None,
        numbers: Mapping[str, str],
        inputs: Mapping[str, str],
    ) -> None:
        self.workload = workload
        self.kernel = kernel
        self.tensors = {t.name: t for t in workload.tensors if not t.is_local}
        self.params = {p.name: p for p in workload.params}
        self.given: dict[str, Any] = {}
        for name, text in numbers.items():
            self.given[name] = self.number(name, text)
        for name, path in inputs.items():
            self.given[name] = self.input(name, path)

    def unfit(self, option: str, name: str) -> PtoError:
        """Return the error of an option that gives `name`, which is of another kind or is none."""
        match self.params.get(name):
            case w.SizeParam() | w.ScalarParam():
                expected, found, advice = "an array", "a number", f"give `--set {name}=...`"
            case w.TensorParam(is_local=True):
                expected, found, advice = "a tensor of the caller", "one that the program makes", ""
            case w.TensorParam() | w.RowsParam() if option != "--output":
                expected, found, advice = "a number", "an array", f"give `--input {name}=FILE`"
            case w.RowsParam():
                expected, found, advice = "a tensor", "an axis", ""
            case _:
                return self.unknown(name)
        return BadOption(option=f"{option} {name}", expected=expected, found=found, advice=advice)

    def unknown(self, name: str) -> UnknownParameter:
        return UnknownParameter(program=self.workload.name, name=name, advice=did_you_mean(name, self.params))

    def require(self, outputs: Mapping[str, str], written: frozenset[str]) -> None:
        """Refuse what cannot be written, and what is not given.

        Raises:
            UnknownParameter, BadOption: an output is not a tensor that tasks write.
            UnusableFile: the file of an output cannot be written.
            UnboundTensor: something is not given.
        """
        for name, path in outputs.items():
            if name not in self.tensors:
                raise self.unfit("--output", name)
            if name not in written:
                advice = "written: " + ", ".join(f"`{n}`" for n in sorted(written)) if written else ""
                what, found = "a tensor that the program writes", f"`{name}`, which it only reads"
                raise BadOption(option="--output", expected=what, found=found, advice=advice)
            require_writable(path)
        axes = [p for p in self.workload.params if isinstance(p, w.RowsParam)]
        made = {name for axis in axes for name in (axis.outer, *axis.tensors)}
        for param in self.workload.open_params:
            if param.name in self.given or param.name in made or param.name in written:
                continue
            match param:
                case w.SizeParam(default=None) | w.ScalarParam(default=None):
                    kind, advice = "scalar", f"give `--set {param.name}=...`"
                case w.TensorParam() | w.RowsParam():
                    kind, advice = "tensor", f"give `--input {param.name}=FILE`"
                case w.SizeParam() | w.ScalarParam():
                    continue  # it has a default
                case _:
                    assert_never(param)
            raise UnboundTensor(kind=kind, name=param.name, advice=advice)

    def number(self, name: str, text: str) -> int | float | bool:
        param = self.params.get(name)
        if not isinstance(param, (w.SizeParam, w.ScalarParam)):
            raise self.unfit("--set", name)
        dtype = param.type.dtype if isinstance(param, w.ScalarParam) else None
        try:
            if dtype is b1:
                return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            return _float(text) if dtype is not None and dtype.is_float else int(text, 0)
        except (KeyError, ValueError):
            kind = "an integer" if dtype is None else f"a number of type {dtype}"
            shown = f"`{text}`" if len(text) <= MAX_SHOWN else f"`{text[:MAX_SHOWN]}...`"
            raise BadOption(option=f"--set {name}", expected=kind, found=shown, advice="") from None

    def input(self, name: str, path: str) -> object:
        match self.params.get(name):
            case w.TensorParam(type=kind, is_local=False):
                return read_array(path, kind.dtype)
            case w.RaggedParam():
                return Ragged.indptr(read_array(path, None))
            case w.SparseParam():
                offsets, comma, indices = path.partition(",")
                if not comma:
                    expected = "two files, `offsets.npy,indices.npy`"
                    raise BadOption(option=f"--input {name}", expected=expected, found=f"`{path}`", advice="")
                return Sparse.csr(read_array(offsets, None), read_array(indices, None))
            case _:
                raise self.unfit("--input", name)

    def arrays(self, written: frozenset[str]) -> dict[str, np.ndarray]:
        """Return the arrays that are written: those of inputs, taken out of `given`, or zeros.

        Raises:
            UnboundTensor: the size of one is not known.
        """
        sizes = self.sizes()
        found: dict[str, np.ndarray] = {}
        for name in (name for name in self.tensors if name in written):
            if name in self.given:
                found[name] = self.given.pop(name)
            else:
                kind = self.tensors[name].type
                shape = tuple(self.size(name, number, sizes) for number in range(len(kind.dims)))
                found[name] = empty(shape, kind.dtype)
        return found

    def sizes(self) -> dict[str, Value]:
        """Return the sizes that options and the arrays of inputs give, and those that follow from them."""
        found: dict[str, Value] = {}
        for name, tensor in self.tensors.items():
            array = self.given.get(name)
            if isinstance(array, np.ndarray):
                pairs = zip(tensor.type.dims, array.shape, strict=False)
                found |= {dim: size for dim, size in pairs if isinstance(dim, str)}
        for param in self.workload.symbols:
            if isinstance(param, w.SizeParam) and param.default is not None:
                found.setdefault(param.name, param.default)
        found |= {name: value for name, value in self.given.items() if isinstance(value, (int, float))}
        pending = [p for p in self.workload.symbols if p.value is not None and p.name not in found]
        while pending:
            ready = [p for p in pending if p.value is not None and _is_known(p.value, found)]
            found |= {p.name: evaluate(p.value, found) for p in ready if p.value is not None}
            pending = [p for p in pending if p not in ready] if ready else []
        return found

    def size(self, tensor: str, number: int, sizes: Mapping[str, Value]) -> int:
        """Return a dimension of a tensor that is made; where nothing says, as tasks need it."""
        dim = self.tensors[tensor].type.dims[number]
        if isinstance(dim, int):
            return dim
        if dim in sizes:
            return max(int(sizes[dim]), 0)
        kind = None if self.kernel is None else self.kernel.param(tensor).type
        if isinstance(kind, TileType):
            return kind.shape[number]
        needed = extent_needed(self.workload, tensor, number)
        if needed is not None and _is_known(needed, sizes):
            return max(int(evaluate(needed, sizes)), 0)
        advice = f"give `--set {dim}=...`, or `--input {tensor}=...`"
        raise UnboundTensor(kind="size", name=dim, advice=advice)


def _float(text: str) -> float:
    """Return a number, infinite only where the text says so."""
    value = float(text)
    if math.isinf(value) and any(character.isdigit() for character in text):
        raise ValueError(text)
    return value


def _is_known(value: Any, sizes: Mapping[str, Value]) -> bool:
    return all(part.name in sizes for part in walk(value) if isinstance(part, Var))


def _report(
    program: Program, arrays: Mapping[str, np.ndarray], outputs: Mapping[str, str], has_stats: bool
) -> None:
    """Say what was written where, and, where asked, what the run took."""
    for name, array in arrays.items():
        where = f" -> {outputs[name]}" if name in outputs else ""
        print(f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]{where}")
    if has_stats:
        print(program.stats)
    if program.target == "sim":
        print(program.report())
