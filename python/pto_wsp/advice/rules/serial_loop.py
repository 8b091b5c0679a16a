"""`serial-loop`: iterations of a `P` wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.chains import longest_chain
from pto_wsp.advice.rule import Rule, advice, loop_source
from pto_wsp.ir import workload as w
from pto_wsp.ir.printer import loop_text
from pto_wsp.visualize.timeline import REASONS

CODE = "serial-loop"
LEAST_SHARE = 0.5
"""Share of the iterations of a `P` that must be in one chain."""


def find(case: Case) -> Iterable[Advice]:
    """Yield an advice for each `P` whose iterations data serialises."""
    if case.num_workers < 2:
        return
    for loop in case.every_loop:
        if loop.kind == w.PARALLEL:
            yield from _serial(case, loop)


def _serial(case: Case, loop: w.Loop) -> Iterator[Advice]:
    ordered, found = case.iterations(loop), case.run.dependences
    instance, iteration = ordered.instance, ordered.iteration
    before, after = found[:, 0], found[:, 1]
    crosses = (instance[before] >= 0) & (instance[before] == instance[after])
    crosses &= (iteration[before] != iteration[after]) & (found[:, 3] >= 0)
    if not crosses.any():
        return
    inside = np.flatnonzero(instance >= 0)
    nodes, node = np.unique(
        np.stack([instance[inside], iteration[inside]], axis=1), axis=0, return_inverse=True
    )
    of_task = np.full(len(instance), -1, np.int64)
    of_task[inside] = node.reshape(-1)
    took = np.bincount(of_task[inside], case.steady_ns[inside], len(nodes)).astype(np.int64)
    edges = np.unique(of_task[found[crosses][:, :2]], axis=0)
    chain_ns, iterations, longest = 0, 0, 0
    for number in np.unique(nodes[:, 0]).tolist():
        chosen = np.flatnonzero(nodes[:, 0] == number)
        first, last = chosen[0], chosen[-1] + 1
        own = edges[(edges[:, 0] >= first) & (edges[:, 0] < last)] - first
        chain = longest_chain(took[first:last], own)
        chain_ns = max(chain_ns, chain.took_ns)
        if len(chain.tasks) > longest:
            longest, iterations = len(chain.tasks), len(chosen)
    if longest >= LEAST_SHARE * iterations and longest > 1:
        evenly = int(took.sum()) / min(case.num_workers, len(nodes))
        yield from _advice(case, loop, found[crosses], (longest, iterations), chain_ns - evenly)


def _advice(
    case: Case, loop: w.Loop, edges: np.ndarray, chain: tuple[int, int], gain_ns: float
) -> list[Advice]:
    kinds, counts = np.unique(edges[:, 2:], axis=0, return_counts=True)
    reason, tensor = kinds[counts.argmax()].tolist()
    name, count = case.run.tensors[int(tensor)], int(counts.max())
    of_kind = edges[(edges[:, 2] == reason) & (edges[:, 3] == tensor)]
    call = int(np.bincount(case.run.call[of_kind[:, 1]]).argmax())
    kernel, var = case.nodes[call].kernel, loop.called
    if reason == 0:
        remedy = f"give each iteration a part of `{name}` of its own and combine the parts after the loop, "
        remedy += "or state the order with `P.seq` and share a loop around it"
    else:
        remedy = f"give each iteration a part of `{name}` of its own"
    argument = _argument(case, call, name)
    example = f"{loop_source(case, loop)}\n    {kernel}[{var}](..., {argument}={name}_parts[{var}])"
    return advice(
        case,
        CODE,
        f"iterations of `{loop_text(loop)}` wait for each other through `{name}`: "
        f"{chain[0]:,} of {chain[1]:,} are one chain",
        gain_ns,
        remedy,
        example,
        loop.loc,
        f"{REASONS[reason]} of `{name}`, {count:,} times",
        [(f"`{kernel}` waits for an earlier iteration", case.nodes[call].loc)],
    )


def _argument(case: Case, call: int, tensor: str) -> str:
    """Return the name of the kernel's parameter that a tensor is given for."""
    pairs = zip(case.kernel(call).params, case.nodes[call].args, strict=True)
    return next((p.name for p, arg in pairs if getattr(arg, "tensor", None) == tensor), "out")


RULE = Rule(
    CODE,
    "iterations of a `P` wait for each other",
    f"the longest chain of iterations (from {LEAST_SHARE:.0%} of them), the tensor and the kind of hazard",
    "give each iteration a part of the tensor of its own, or use `P.seq`",
    find,
)
