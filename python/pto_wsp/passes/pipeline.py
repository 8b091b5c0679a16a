"""Passes by name, and pipelines of them as text: `inline,fuse,unroll{factor=4},dce`.

What a pass makes is verified before the next one sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pto_wsp.errors import BadPipeline, InvalidIR, UnknownPass, did_you_mean
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.passes.canonical_names import canonical_names
from pto_wsp.passes.eliminate_dead_code import eliminate_dead_code
from pto_wsp.passes.expand.expand_loops import expand_loops
from pto_wsp.passes.forward_stores import forward_stores
from pto_wsp.passes.fuse_loops import fuse_loops
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.passes.reuse_buffers import reuse_buffers
from pto_wsp.passes.unroll_loops import unroll_loops
from pto_wsp.support.record import record


@record
class Pass:
    """A named function from modules to modules.

    Attributes:
        name: in pipelines.
        run: the function; its options are keyword arguments.
        doc: what it does, in a line.
        options: its options, each with its default.
    """

    name: str
    run: Callable[..., Module]
    doc: str
    options: Mapping[str, int]


@record
class PipelineStep:
    """One pass of a pipeline, with its options."""

    made_by: Pass
    options: Mapping[str, int]

    def __str__(self) -> str:
        given = ",".join(f"{key}={value}" for key, value in self.options.items())
        return self.made_by.name + (f"{{{given}}}" if given else "")

    def run(self, module: Module) -> Module:
        """Return what the pass makes of a verified module, verified."""
        try:
            return verify(self.made_by.run(module, **{**self.made_by.options, **self.options}))
        except InvalidIR as error:
            message = f"the pass `{self}` made a module that is not sound: {error.message}"
            raise InvalidIR(message=message, loc=error.loc) from error


def _passes(*found: Pass) -> dict[str, Pass]:
    return {each.name: each for each in found}


PASSES: dict[str, Pass] = _passes(
    Pass("inline", inline_calls, "put the bodies of called functions in the places of their calls", {}),
    Pass("canonical", canonical_names, "name what functions declare for themselves by its order", {}),
    Pass("fuse", fuse_loops, "make one loop of two that follow each other and count alike", {}),
    Pass("forward", forward_stores, "do not load what a tile holds, nor store what memory holds", {}),
    Pass("reuse", reuse_buffers, "let tiles that are not in use together be one tile", {"capacity": 0}),
    Pass("unroll", unroll_loops, "repeat the bodies of loops of constant length", {"factor": 4, "full": 4}),
    Pass("dce", eliminate_dead_code, "remove what nothing needs", {}),
    Pass("expand", expand_loops, "take loops with a `max_range` apart into blocks of powers of two", {}),
)
"""Every pass by its name in pipelines."""

_STEP = re.compile(r"\s*([^\s{},]+)\s*(?:\{([^{}]*)\})?\s*")
_OPTION = re.compile(r"\s*([a-z_]+)\s*=\s*([0-9]{1,18})\s*")


def parse_pipeline(text: str) -> tuple[PipelineStep, ...]:
    """Return the steps of a pipeline.

    Raises:
        BadPipeline: it cannot be read.
        UnknownPass: it names a pass that does not exist.
    """
    steps: list[PipelineStep] = []
    place = 0
    while True:
        found = _STEP.match(text, place)
        if found is None:
            raise BadPipeline(text=text, expected="the name of a pass", found=_rest(text, place))
        steps.append(_step(text, found[1], found[2]))
        place = found.end()
        if place == len(text):
            return tuple(steps)
        if text[place] != ",":
            raise BadPipeline(text=text, expected="`,` or the end", found=_rest(text, place))
        place += 1


def _rest(text: str, place: int) -> str:
    return f"`{text[place:]}`" if text[place:].strip() else "the end"


def _step(text: str, name: str, options: str | None) -> PipelineStep:
    if name not in PASSES:
        raise UnknownPass(name=name, advice=did_you_mean(name, PASSES))
    known = PASSES[name].options
    given: dict[str, int] = {}
    for part in options.split(",") if options and options.strip() else ():
        option = _OPTION.fullmatch(part)
        if option is None:
            raise BadPipeline(text=text, expected="`name=number`", found=f"`{part}`")
        if option[1] not in known:
            names = ", ".join(f"`{key}`" for key in known) or "no options"
            raise BadPipeline(text=text, expected=f"{names} for `{name}`", found=f"`{option[1]}`")
        given[option[1]] = int(option[2])
    return PipelineStep(PASSES[name], given)


def run_pipeline(
    module: Module,
    steps: tuple[PipelineStep, ...],
    after: Callable[[PipelineStep, Module], None] | None = None,
) -> Module:
    """Return what the steps make of a module, which is verified first.

    Args:
        module: the module.
        steps: what `parse_pipeline` returns.
        after: called with each step and what it made.
    """
    verify(module)
    for step in steps:
        module = step.run(module)
        if after is not None:
            after(step, module)
    return module


def prepare(module: Module) -> Module:
    """Return a module whose entry can be lowered: its calls inlined, its loops with ranges expanded."""
    return expand_loops(inline_calls(module))
