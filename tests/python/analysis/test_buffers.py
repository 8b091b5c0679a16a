"""Placement of buffers that are not in use all the time."""

from __future__ import annotations

from pto_wsp.analysis.buffers import LiveBuffer, live_at_peak, pack


def buffers(first: int, last: int) -> tuple[LiveBuffer, LiveBuffer, LiveBuffer]:
    """Return a buffer with a gap, one in use from `first` to `last`, and one in use all the time."""
    return (
        LiveBuffer("gap", 128, 0, 20, gaps=((5, 15),)),
        LiveBuffer("part", 128, first, last),
        LiveBuffer("all", 64, 0, 20),
    )


def test_a_buffer_may_lie_in_a_gap() -> None:
    blocks = buffers(5, 15)
    assert pack(blocks) == 192 and blocks[0].offset == blocks[1].offset == 0 and blocks[2].offset == 128


def test_a_buffer_that_is_in_use_outside_a_gap_has_its_own_memory() -> None:
    for first, last in ((4, 15), (5, 16), (0, 20), (16, 18)):
        assert pack(buffers(first, last)) == 320


def test_the_peak_leaves_gaps_out() -> None:
    assert [block.key for block in live_at_peak(buffers(5, 15))] == ["gap", "all"]
    large = LiveBuffer("large", 256, 6, 7)
    assert [block.key for block in live_at_peak([*buffers(5, 15), large])] == ["large", "part", "all"]
