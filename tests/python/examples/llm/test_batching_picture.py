"""The picture of continuous batching is what the engine does."""

from __future__ import annotations

from docs.batching_picture import ARRIVALS, PATH, STEP_TOKENS, drawing, parts
from pto_wsp.visualize.drawing import to_svg


def test_the_picture_is_up_to_date() -> None:
    assert PATH.read_text("utf-8") == to_svg(drawing())


def test_it_shows_chunks_a_shared_prefix_and_a_preemption() -> None:
    found, reused = parts()
    assert reused == {"A": 0, "B": 0, "C": 0, "D": 128}
    assert {part.request for part in found if part.is_again} == {"D"}
    assert max(sum(p.tokens for p in found if p.step == step) for step in range(4)) == STEP_TOKENS
    for arrival in ARRIVALS:
        decoded = [part for part in found if part.request == arrival.name and not part.is_prompt]
        chunks = {part.step for part in found if part.request == arrival.name and part.is_again}
        assert len(decoded) == arrival.new - 1 - len(chunks)
