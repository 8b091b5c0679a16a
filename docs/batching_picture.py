"""The picture of continuous batching in `docs/models.md`: `python -m docs.batching_picture`.

The engine of `examples/llm` decides what each step has. A model that always gives token 0 takes its place, so
the picture does not depend on weights or on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np

from examples.llm.engine import Engine, Request
from examples.llm.model import Chunk, Model
from pto_wsp.visualize.drawing import (
    COLOURS,
    INK,
    PALE,
    PAPER,
    Box,
    Drawing,
    Line,
    Shape,
    Text,
    legend,
    to_svg,
)

PATH = Path(__file__).parent / "images" / "models" / "batching.svg"
STEP_TOKENS, PAGES = 128, 10
LEFT, TOP, WIDTH, HEIGHT = 96, 30, 40, 34
PROMPT, DECODE, AGAIN = COLOURS[0], COLOURS[2], COLOURS[1]


class Arrival(NamedTuple):
    """A request: its name, the step before which it comes, its prompt and the number of new tokens."""

    name: str
    step: int
    prompt: list[int]
    new: int


SHARED = list(range(128))
ARRIVALS = (
    Arrival("A", 0, [*SHARED, *range(1000, 1150)], 13),
    Arrival("B", 1, list(range(2000, 2060)), 9),
    Arrival("C", 2, list(range(3000, 3180)), 9),
    Arrival("D", 5, [*SHARED, *range(4000, 4020)], 8),
)


class Part(NamedTuple):
    """What a step has of a request: its tokens, and whether they are a prompt and were there before."""

    request: str
    step: int
    tokens: int
    is_prompt: bool
    is_again: bool


class _Recorder(Engine):
    """An engine that keeps what its steps have."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, STEP_TOKENS)
        self.names: dict[Request, str] = {}
        self.found: list[Part] = []

    def _run(self, batch: dict[Request, int]) -> None:
        for request, count in batch.items():
            is_prompt = len(request.ids) - request.cached > 1 or not request.new
            name, is_again = self.names[request], bool(request.preemptions) and is_prompt
            self.found.append(Part(name, self.steps, count, is_prompt, is_again))
        super()._run(batch)


def parts() -> tuple[list[Part], dict[str, int]]:
    """Return what every step has, and how many tokens of each request were in the cache when it came."""

    def run(chunks: Sequence[Chunk]) -> tuple[None, np.ndarray]:
        return None, np.zeros(sum(chunk.wanted for chunk in chunks), np.int64)

    config = SimpleNamespace(context=4096, vocab=8192, end=())
    model = SimpleNamespace(packed=SimpleNamespace(config=config), pages=PAGES, adapters={}, run=run)
    engine, arrivals, reused = _Recorder(cast(Model, model)), list(ARRIVALS), {}
    while arrivals or not engine.is_idle:
        while arrivals and arrivals[0].step <= engine.steps:
            arrival = arrivals.pop(0)
            engine.names[engine.add(arrival.prompt, arrival.new)] = arrival.name
        engine.step()
        for request, name in engine.names.items():
            if request.pages:
                reused.setdefault(name, request.reused)
    return engine.found, reused


def drawing() -> Drawing:
    """Return the picture: a row for each request and for the sum, a column for each step."""
    found, _ = parts()
    steps = max(part.step for part in found) + 1
    rows = {arrival.name: TOP + i * HEIGHT for i, arrival in enumerate(ARRIVALS)}
    bottom, right = TOP + len(rows) * HEIGHT, LEFT + steps * WIDTH
    shapes: list[Shape] = [Box(0, 0, right + 16, bottom + 62, PAPER)]
    for step in range(steps):
        x = LEFT + (step + 0.5) * WIDTH
        total = sum(part.tokens for part in found if part.step == step)
        shapes += [Line(x - WIDTH / 2, TOP, x - WIDTH / 2, bottom + HEIGHT)]
        shapes += [Text(x, TOP - 8, str(step), 11, PALE, "middle")]
        shapes += [Text(x, bottom + 22, str(total), 11, INK, "middle", is_bold=True)]
    for arrival in ARRIVALS:
        y = rows[arrival.name]
        last = max(part.step for part in found if part.request == arrival.name)
        shapes += [Text(12, y + 21, f"request {arrival.name}")]
        middle = y + HEIGHT / 2
        shapes += [Line(LEFT + arrival.step * WIDTH, middle, LEFT + (last + 1) * WIDTH, middle, PALE)]
    for part in found:
        x, y = LEFT + part.step * WIDTH, rows[part.request]
        fill = AGAIN if part.is_again else PROMPT if part.is_prompt else DECODE
        shapes += [Box(x + 2, y + 5, WIDTH - 4, HEIGHT - 10, fill, radius=3)]
        shapes += [Text(x + WIDTH / 2, y + 21, str(part.tokens), 11, PAPER, "middle", is_bold=True)]
    shapes += [Text(12, TOP - 8, "step", 11, PALE), Text(12, bottom + 22, "tokens")]
    names = [("prompt chunk", PROMPT), ("decode step", DECODE), ("again after preemption", AGAIN)]
    shapes += legend(names, LEFT, bottom + HEIGHT + 4, right - LEFT)[0]
    return Drawing(right + 16, bottom + 62, shapes)


def main() -> None:
    """Write the picture."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(to_svg(drawing()), "utf-8")


if __name__ == "__main__":
    main()
