"""`P`: the loops of a workload, and pipelines of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pto_wsp.errors import BadNetwork
from pto_wsp.lang.kernel.declarations import KernelParam
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.operands import kind_of
from pto_wsp.lang.workload.axes import Loops
from pto_wsp.lang.workload.channels import Channel
from pto_wsp.lang.workload.networks import ProcessFunction, network, process
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType


@record
class _Stage:
    """A kernel of a pipeline, and its two parameters."""

    name: str
    kernel: Kernel
    source: KernelParam
    target: KernelParam

    @property
    def source_type(self) -> TileType:
        """The block that it reads."""
        assert isinstance(self.source.type, TileType)
        return self.source.type

    @property
    def target_type(self) -> TileType:
        """The block that it writes."""
        assert isinstance(self.target.type, TileType)
        return self.target.type


class AllLoops(Loops):
    """Loops of a workload; `P` is the only one.

    `P(a, b, ...)` states that iterations are independent. An axis is an extent, the name of a size, or an
    axis object. Hazards between tasks are tracked all the same.
    """

    @staticmethod
    def pipe(*kernels: Kernel, depth: int = 2) -> Workload:
        """Return a network with a process per kernel, and a channel between neighbours.

        Its parameters are `X` and `Y`, tensors of `n` blocks: the first kernel reads each block of `X`, and
        the last one writes the same block of `Y`. It computes what the network written out computes.

        Args:
            kernels: two or more. Each has one `In` tile and one `Out` tile; the `In` tile has the type of
                the `Out` tile before it.
            depth: of the channels.

        Raises:
            BadNetwork: other kernels.
            BadChannel: a depth that a channel cannot have.
        """
        loc = caller_location()
        stages = [_stage(kernel, number, kernels, loc) for number, kernel in enumerate(kernels)]
        if len(stages) < 2:
            raise _bad("`P.pipe` takes two or more kernels", f"found {len(stages)}", loc)
        for one, two in pairwise(stages):
            if one.target_type != two.source_type:
                problem = f"kernel `{two.kernel.name}` does not read what `{one.kernel.name}` writes"
                raise _bad(problem, f"expected {one.target_type}, found {two.source_type}", loc)
        types = [stage.target_type for stage in stages[:-1]]
        channels = [
            Channel(f"{stage.name}_out", Tensor[t.dtype, t.rows, t.cols], depth)
            for stage, t in zip(stages, types, strict=False)
        ]
        middle = [_middle(s, a, b) for s, (a, b) in zip(stages[1:-1], pairwise(channels), strict=True)]
        return network(_first(stages[0], channels[0]), *middle, _last(stages[-1], channels[-1]), name="pipe")


def _stage(kernel: object, number: int, kernels: Sequence[object], loc: Location | None) -> _Stage:
    if not isinstance(kernel, Kernel):
        raise _bad("`P.pipe` takes kernels", f"found {kind_of(kernel)}", loc)
    sources, targets = ([p for p in kernel.params if p.role == role] for role in ("in", "out"))
    is_plain = len(sources) == len(targets) == 1 and len(kernel.params) == 2
    if not is_plain or not all(isinstance(p.type, TileType) for p in kernel.params):
        expected = "expected one `In` tile and one `Out` tile, and no other parameter"
        raise _bad(f"kernel `{kernel.name}` cannot be a stage of `P.pipe`", expected, loc)
    is_twice = sum(isinstance(other, Kernel) and other.name == kernel.name for other in kernels) > 1
    name = f"{kernel.name}_{number}" if is_twice else kernel.name
    return _Stage(name, kernel, sources[0], targets[0])


def _first(stage: _Stage, channel: Channel) -> ProcessFunction:
    block = stage.source_type
    blocks = Tensor[block.dtype, "n", block.rows, block.cols]

    def run(X: blocks) -> None:  # pyright: ignore[reportInvalidTypeForm]
        for i in _LOOPS("n"):
            with channel.send_at(stage.kernel.loc) as token:
                _call(stage, X[i], token)

    return _named(run, stage)


def _middle(stage: _Stage, source: Channel, target: Channel) -> ProcessFunction:
    def run() -> None:
        for token in source.receive():
            with target.send_at(stage.kernel.loc) as result:
                _call(stage, token, result)

    return _named(run, stage)


def _last(stage: _Stage, channel: Channel) -> ProcessFunction:
    block = stage.target_type
    blocks = Tensor[block.dtype, "n", block.rows, block.cols]

    def run(Y: blocks) -> None:  # pyright: ignore[reportInvalidTypeForm]
        for token in channel.receive():
            _call(stage, token, Y[token.index])

    return _named(run, stage)


def _call(stage: _Stage, source: Any, target: Any) -> None:
    stage.kernel(**{stage.source.name: source, stage.target.name: target})


def _named(run: Any, stage: _Stage) -> ProcessFunction:
    return ProcessFunction(stage.name, process(run).body)


def _bad(problem: str, detail: str, loc: Location | None) -> BadNetwork:
    return BadNetwork(problem=problem, detail=detail, advice="", loc=loc)


_LOOPS = Loops()
P = AllLoops()
