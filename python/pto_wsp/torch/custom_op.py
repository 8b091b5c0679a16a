"""Workloads as operators of `torch.library`: eager, under `torch.compile`, exported."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from pto_wsp.errors import CallArgument, NoGradient, UnknownParameter, did_you_mean
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import caller_location
from pto_wsp.runtime.binding import Binder
from pto_wsp.runtime.program import Program
from pto_wsp.torch.signature import INDICES, OFFSETS, Signature, signature


class CustomOp:
    """A workload as a torch operator: call it with tensors of the CPU by name.

    Attributes:
        name: of the operator, `namespace::name`.
        program: the compiled workload; `program.stats` are the figures of the last call.
        schema: arguments and results, in torch's schema language.
        op: what `torch.library.custom_op` returned: for `register_autograd`, `opcheck` and the like.
    """

    def __init__(self, name: str, program: Program, parts: Signature) -> None:
        self.name = name
        self.program = program
        self.schema = parts.schema
        self._parts = parts
        self.op = torch.library.custom_op(name, mutates_args=sorted(parts.mutated), schema=parts.schema)(
            self._run
        )
        self.op.register_fake(self._fake)
        if not parts.mutated:
            self.op.register_autograd(self._refuse_gradient)

    def __repr__(self) -> str:
        return f"<torch operator {self.name}{self.schema}>"

    def __call__(self, **values: Any) -> Any:
        """Run the workload on tensors.

        Args:
            values: a tensor per tensor of the workload that is not returned, used in place. An axis with rows
                takes its offsets `[rows + 1]`, a sparse one a pair of offsets and indices. A jagged nested
                tensor is its values; the axis takes its offsets too, if it is the only one. A number per
                scalar and per size that no tensor decides.

        Returns:
            The returned tensor, a tuple of several, or None. Elements that no task writes are 0.

        Raises:
            CallArgument: an argument is missing.
            UnknownParameter: there is no such argument.
            NoGradient: in the backward pass; at the call, if the operator writes an argument.
            BindError, KernelFailed: as `Program.run`.
        """
        given = self._given(values)
        if self._parts.mutated and torch.is_grad_enabled():
            for value in given.values():
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    raise NoGradient(op=self.name)
        return self.op(*[given[name] for name in self._parts.arguments])

    def _given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the operator's arguments by name."""
        given: dict[str, Any] = {}
        offsets: list[Any] = []
        for name, value in values.items():
            if name in self._parts.axes:
                pair = value if isinstance(value, tuple) else (value,)
                given |= dict(zip((name + OFFSETS, name + INDICES), pair, strict=False))
            elif isinstance(value, torch.Tensor) and value.is_nested:
                nested: Any = value
                given[name] = nested.values()
                offsets.append(nested.offsets())
            else:
                given[name] = value
        if offsets and len(self._parts.axes) == 1:
            (axis,) = self._parts.axes
            given.setdefault(axis + OFFSETS, offsets[0])
        for name in given:
            if name not in self._parts.arguments:
                advice = did_you_mean(name, self._parts.arguments)
                raise UnknownParameter(program=self.name, name=name, advice=advice, loc=caller_location())
        for name in self._parts.arguments:
            if name not in given:
                detail = f"it takes {', '.join(self._parts.arguments)}"
                problem = f"misses `{name}`"
                raise CallArgument(workload=self.name, problem=problem, detail=detail, loc=caller_location())
        return given

    def _run(self, *args: Any) -> Any:
        """Allocate what is returned, and run on the tensors' memory."""
        named = dict(zip(self._parts.arguments, args, strict=True))
        given = {n: v.detach() if isinstance(v, torch.Tensor) else v for n, v in named.items()}
        made = [
            torch.zeros(shape, dtype=tensor.dtype)
            for tensor, shape in zip(self._parts.returned, self._parts.shapes(given), strict=True)
        ]
        values = self._parts.values(given)
        values |= {tensor.name: value for tensor, value in zip(self._parts.returned, made, strict=True)}
        self.program.run(**values)
        return _result(made)

    def _fake(self, *args: Any) -> Any:
        """Return tensors of the shapes that a run would return; runs nothing."""
        given = dict(zip(self._parts.arguments, args, strict=True))
        like = next((v for v in args if isinstance(v, torch.Tensor)), torch.empty(0))
        shapes = self._parts.shapes(given)
        pairs = zip(self._parts.returned, shapes, strict=True)
        return _result([like.new_empty(shape, dtype=tensor.dtype) for tensor, shape in pairs])

    def _refuse_gradient(self, *_: Any) -> NoReturn:
        raise NoGradient(op=self.name)


def _result(tensors: list[torch.Tensor]) -> Any:
    if not tensors:
        return None
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def custom_op(name: str, workload: Workload, *, returns: Sequence[str] = (), target: str = "cpu") -> CustomOp:
    """Register a workload as a torch operator with schema and fake kernel.

    It runs eagerly, under `torch.compile(fullgraph=True)` and `torch.export`, on the memory of its arguments.
    It has no gradient: register one with `result.op.register_autograd`, or be refused in the backward pass.

    Args:
        name: `namespace::name`, as `torch.library.custom_op` takes it.
        workload: with what is bound to its parameters, which are not arguments then.
        returns: tensors that the operator allocates and returns; other tensors that tasks write are arguments
            that it mutates.
        target: as `Workload.compile` takes it.

    Example:
        op = custom_op("mylib::softmax_rows", softmax_rows, returns=["Y"])
        y = torch.compile(lambda x: op(X=x), fullgraph=True)(torch.randn(300, 256))

    Raises:
        UnknownParameter, BadReturn: `returns` names what cannot be returned.
        CompileError: as `Workload.compile`.
    """
    traced = workload.trace()
    program = workload.compile(target)
    params = Binder(traced.module.entry_workload, {}).params
    open_params = {n: p for n, p in params.items() if n not in traced.defaults}
    return CustomOp(name, program, signature(traced.module, open_params, returns))
