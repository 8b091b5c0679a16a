"""`large-tiles`: tiles of a kernel do not fit the second-level cache of a core."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.rule import Rule, advice, tasks_of
from pto_wsp.analysis.buffers import buffer_use, first_writes
from pto_wsp.ir.kernel import Instr, walk_statements
from pto_wsp.visualize.graph import bytes_text
from pto_wsp.visualize.timeline import duration_text

CODE = "large-tiles"
NUM_TILES = 3
SAVED = 1 / 3
"""Share of the time of such tasks that is at stake: that of memory beyond the second-level cache."""


def find(case: Case) -> Iterable[Advice]:
    """Yield an advice for each call of a kernel with such tiles."""
    for call, node in enumerate(case.nodes):
        needed = case.machine.scratch_bytes.get(node.kernel, 0)
        if case.machine.l2_bytes and needed > case.machine.l2_bytes:
            yield from _large(case, call, needed)


def _large(case: Case, call: int, needed: int) -> Iterable[Advice]:
    kernel = case.kernel(call)
    # What a load makes is read in place where that is possible.
    computed = {stmt.dst for stmt in walk_statements(kernel.body or ()) if isinstance(stmt, Instr)}
    places = first_writes(kernel)
    peak = [(tile, size) for tile, size in buffer_use(kernel).peak if tile in computed][:NUM_TILES]
    rows = case.tasks(call)
    busy = int(case.took_ns[rows].sum())
    notes = [(f"`{tile}` takes {bytes_text(size)}", places.get(tile)) for tile, size in peak]
    share = f"{busy / max(1, case.report.busy_ns):.0%} of the time of all tasks"
    return advice(
        case,
        CODE,
        f"the tiles of `{kernel.name}` take {bytes_text(needed)}, and the second-level cache has "
        f"{bytes_text(case.machine.l2_bytes)}",
        SAVED * busy / case.num_workers,
        "let a task work on parts of the tile, or divide the rows among more tasks",
        "for r in pto.tiles(x.rows, 64):\n    ...  # on x[r]: tiles of 64 rows",
        places.get(peak[0][0]) if peak else kernel.loc,
        f"{bytes_text(peak[0][1])}" if peak else "",
        [*notes, (f"{tasks_of(len(rows), kernel.name)}: {duration_text(busy)}, {share}", None)],
    )


RULE = Rule(
    CODE,
    "tiles of a kernel do not fit the second-level cache",
    "bytes of the tiles that are live together, of the cache; time of the tasks",
    "work on parts of the tile in a loop (`pto.tiles`), or use more tasks",
    find,
)
