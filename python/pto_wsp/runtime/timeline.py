"""The picture of a run: one lane per worker, time from left to right, one colour per kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.text import TextWriter

_WIDTH, _LANE, _GAP, _LEFT, _TOP, _BOTTOM = 960, 34, 10, 92, 58, 66
COLOURS = ("#2f6db3", "#d9822b", "#3a9b5c", "#b5495b", "#7d5ba6", "#1f9aa8", "#a67c37", "#6b7280")


def timeline_svg(
    kernels: Sequence[str],
    kernel: np.ndarray,
    worker: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> str:
    """Return the timeline as SVG.

    Args:
        kernels: names of the kernels.
        kernel: index into `kernels`, per task.
        worker: index of the thread, per task.
        start_ns: start per task, in ns.
        end_ns: end per task, in ns.

    The picture's size does not grow with the number of tasks: tasks closer than half a pixel to each other
    on one lane are drawn as one bar.
    """
    from html import escape  # here: few programs draw a timeline, and all of them start

    names = [escape(name) for name in kernels]
    lanes = [int(w) for w in np.unique(worker)]
    begin = int(start_ns.min()) if len(start_ns) else 0
    span = max(1, (int(end_ns.max()) if len(end_ns) else 1) - begin)
    height = _TOP + len(lanes) * (_LANE + _GAP) + _BOTTOM
    out = TextWriter()
    out.line(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 24} {height}"')
    out.line('     font-family="sans-serif" font-size="13" fill="#222">')
    with out.indented():
        out.line('<rect width="100%" height="100%" fill="white"/>')
        _title(out, len(kernel), len(lanes), span, int((end_ns - start_ns).sum()))
        for row, lane in enumerate(lanes):
            y = _TOP + row * (_LANE + _GAP)
            out.line(f'<text x="12" y="{y + _LANE / 2 + 5:g}">worker {lane}</text>')
            out.line(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LANE}" fill="#f0f1f4"/>')
            for index, name in enumerate(names):
                chosen = (worker == lane) & (kernel == index)
                _bars(out, name, index, y, span, start_ns[chosen] - begin, end_ns[chosen] - begin)
        _time_axis(out, height - _BOTTOM + 4, span)
        _legend(out, height - 14, names)
    out.line("</svg>")
    return str(out)


def _title(out: TextWriter, tasks: int, workers: int, span: int, busy: int) -> None:
    title = f"{tasks:,} tasks on {workers} workers in {_duration(span)}"
    out.line(f'<text x="{_LEFT}" y="24" font-size="16" font-weight="bold">{title}</text>')
    share = busy / (span * max(1, workers))
    out.line(f'<text x="{_LEFT}" y="44" fill="#555">workers busy {share:.0%} of the time</text>')


def _bars(
    out: TextWriter, name: str, index: int, y: int, span: int, start: np.ndarray, end: np.ndarray
) -> None:
    if not len(start):
        return
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.r_[True, start[1:] - end[:-1] > span / (2 * _WIDTH)])
    counts = np.diff(np.r_[first, len(start)])
    out.line(f'<g fill="{COLOURS[index % len(COLOURS)]}" stroke="white" stroke-width="0.4">')
    with out.indented():
        for group, count in zip(first, counts, strict=True):
            x0, x1 = start[group] / span * _WIDTH, end[group + count - 1] / span * _WIDTH
            what = f"{count:,} tasks" if count > 1 else _duration(int(end[group] - start[group]))
            box = f'x="{_LEFT + x0:.1f}" y="{y + 3}" width="{max(x1 - x0, 0.6):.1f}" height="{_LANE - 6}"'
            out.line(f"<rect {box}><title>{name}: {what}</title></rect>")
    out.line("</g>")


def _time_axis(out: TextWriter, y: float, span: int) -> None:
    step = _round_step(span / 8)
    for time in range(0, span + 1, step):
        x = _LEFT + _WIDTH * time / span
        out.line(f'<line x1="{x:.1f}" y1="{y - 8}" x2="{x:.1f}" y2="{y - 3}" stroke="#888"/>')
        anchor = "middle" if time else "start"
        place = f'x="{x:.1f}" y="{y + 12}" text-anchor="{anchor}"'
        out.line(f'<text {place} fill="#555">{_duration(time)}</text>')


def _round_step(at_least: float) -> int:
    """Return the smallest 1, 2 or 5 times a power of ten that is not below `at_least`."""
    power = 1
    while power * 10 <= at_least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= at_least)


def _legend(out: TextWriter, y: float, kernels: Sequence[str]) -> None:
    x = float(_LEFT)
    for index, name in enumerate(kernels):
        out.line(
            f'<rect x="{x:g}" y="{y - 11}" width="12" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>'
        )
        out.line(f'<text x="{x + 18:g}" y="{y}">{name}</text>')
        x += 40 + 8 * len(name)


def _duration(ns: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"
