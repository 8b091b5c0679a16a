"""From a workload's function to a module: it runs once, with stand-ins for its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import numpy as np

from pto_wsp.errors import UnsupportedSyntax
from pto_wsp.ir.module import Module
from pto_wsp.lang import context
from pto_wsp.lang.assemble import assemble
from pto_wsp.lang.parameters import Parameter
from pto_wsp.lang.ragged import Ragged
from pto_wsp.lang.source import MISSING, FunctionSource
from pto_wsp.lang.sparse import Sparse
from pto_wsp.lang.surface import RaggedAnnotation, SparseAnnotation, TensorAnnotation
from pto_wsp.lang.tensor import Tensor
from pto_wsp.lang.trace import Trace
from pto_wsp.support.record import record


@record
class Traced:
    """A workload as IR.

    Attributes:
        module: its module, whose entry it is.
        defaults: arrays and scalars that a program uses unless a call gives others, by parameter.
        packed: the tensors that do not lie in row-major order, by parameter.
    """

    module: Module
    defaults: Mapping[str, np.ndarray | Ragged | Sparse | int | float]
    packed: Mapping[str, Tensor]


class Tracing:
    """One recording of a workload.

    Attributes:
        source: its function.
        bound: values given to its parameters before.
        trace: what has been recorded.
        defaults: values of parameters that a program uses unless a call gives others.
    """

    def __init__(self, source: FunctionSource, bound: Mapping[str, object]) -> None:
        self.source = source
        self.bound = bound
        self.trace = Trace(source.function.__name__, source.loc, source.names)
        self.defaults: dict[str, np.ndarray | Ragged | Sparse | int | float] = {}

    def run(self) -> Traced:
        """Run the function and return what it describes.

        Raises:
            FrontendError: something in it has no meaning in a workload.
        """
        arguments = self.arguments()
        token = context.ACTIVE.set(self.trace)
        try:
            result = self.source.function(**arguments)
            self.trace.blocks.finish()
            if result is not None:
                raise UnsupportedSyntax(
                    construct="returning a value",
                    where="workload",
                    detail="a workload describes tasks",
                    advice="write results to tensors",
                    loc=self.source.loc,
                )
            module = assemble(self.trace)
        finally:
            context.ACTIVE.reset(token)
        for name, tensor in self.trace.captured.items():
            if isinstance(tensor, Tensor) and tensor.data is not None:
                self.defaults[name] = tensor.data
        named = {**self.trace.params, **self.trace.captured}
        packed = {n: t for n, t in named.items() if isinstance(t, Tensor) and t.stored is not t}
        return Traced(module, self.defaults, packed)

    def arguments(self) -> dict[str, object]:
        """Return a stand-in for every parameter; axes first, since tensors may name them."""
        defaults = self.source.parameters("workload")
        annotations = {name: self.annotation(name) for name in defaults}
        late = (TensorAnnotation, RaggedAnnotation, SparseAnnotation)
        ordered = sorted(defaults, key=lambda n: isinstance(annotations[n], late))
        found: dict[str, object] = {}
        for name in ordered:
            value = self.bound.get(name, defaults[name])
            parameter = Parameter(self.trace, self.source, name, annotations[name], self.defaults)
            found[name] = parameter.stand_in(None if value is MISSING else value)
        self.trace.params = {n: self.trace.params[n] for n in defaults if n in self.trace.params}
        return found

    def annotation(self, name: str) -> object:
        """Return the annotation of a parameter, or None."""
        if name in self.source.args:
            return self.source.annotation(self.source.args[name])
        return inspect.get_annotations(self.source.function, eval_str=True).get(name)
