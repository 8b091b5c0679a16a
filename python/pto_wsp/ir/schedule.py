"""The schedule: how the tasks of a program run. It is data, and replacing it never changes a result.

A schedule has one policy per directive. In `.pto` text the policies that are not the default stand behind
the functions of a module:

    schedule  = "SCHEDULE" "{" newline { line } "}"
    line      = directive "=" name [ "(" arguments ")" ] newline
    arguments = key | count | bounds | key "," count | key "," bounds
    count     = "n" "=" integer
    bounds    = "at" "=" "[" integer { "," integer } "]"

    SCHEDULE {
      dispatch = affinity(%t.b, n = 4)
      window = stall(n = 8192)
      ready = priority(dim(%t.args.k, 0))
    }

A key is a scalar expression over a task `t`, with these names:

- `t.b` is the index of the loop around the task whose variable is `b`, or that runs over the axis `b`;
- `t.kernel` is the number of the task's kernel in the module, `kernel.attend` that of the kernel `attend`;
- `dim(t.args.k, 0)` and `dim(t.args.k, 1)` are the rows and columns of the argument for the parameter `k`.

A task that lacks a name of a key has no key: it goes to any dispatcher, has priority 0, is in no stream, or
runs in any pool.
Source: ARCHITECTURE section 5 ("Knobs"); seed 003 section 4; seed 001 section 4; seed 002 section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pto_wsp.ir.scalar import Expr
from pto_wsp.support.record import record, replace

TASK, ARGUMENTS, KERNEL = "t.", "t.args.", "t.kernel"
"""What names of keys begin with, and the one of a task's kernel."""

KERNEL_NUMBER = "kernel."
"""What the name of the number of a kernel begins with."""

MOST = 64
"""So many dispatchers can walk one program; partitions have one more than bounds."""

MOST_POOLS = 8
"""So many pools can workers be in."""


@record
class Policy:
    """What a schedule says about one directive.

    Attributes:
        directive: which one, of `POLICIES`.
        name: of the policy, of `POLICIES[directive]`.
        count: its number; 0 where it has none, or leaves it open.
        key: its key, or None where it has none.
        bounds: the numbers of tasks at which something changes, in ascending order; empty where it has none.
    """

    directive: str
    name: str
    count: int = 0
    key: Expr | None = None
    bounds: tuple[int, ...] = ()

    @property
    def form(self) -> Form:
        """What the policy takes and does."""
        return POLICIES[self.directive][self.name]


@record
class Form:
    """What a policy takes and does.

    Attributes:
        doc: what it does, in a line.
        takes_key: whether it has a key.
        least: the least count that it takes, or None if it takes none; 0 leaves the count open.
        most: the largest count that it takes.
        takes_bounds: whether it has bounds, one less than it makes parts.
        most_parts: the most parts.
    """

    doc: str
    takes_key: bool = False
    least: int | None = None
    most: int = 2**31 - 1
    takes_bounds: bool = False
    most_parts: int = MOST


POLICIES: Mapping[str, Mapping[str, Form]] = {
    "dispatch": {
        "work_steal": Form("a dispatcher that is free takes the next piece of the program", False, 0, MOST),
        "round_robin": Form("the pieces of the program go to the dispatchers in turn", False, 0, MOST),
        "affinity": Form("tasks with equal keys go to one dispatcher: key modulo n", True, 0, MOST),
        "hash": Form("tasks with equal keys go to one dispatcher: hash of the key modulo n", True, 0, MOST),
        "dispatch_by": Form("the key is the number of the dispatcher, from 0 to n - 1", True, 1, MOST),
        "threshold": Form(
            "tasks with a key below the first bound go to dispatcher 0, below the second to 1, ...",
            takes_key=True,
            takes_bounds=True,
        ),
        "static_partition": Form(
            "the tasks before the first bound go to dispatcher 0, those before the second to 1, ...",
            takes_bounds=True,
        ),
    },
    "window": {
        "stall": Form("at most n tasks are recorded and not complete; the walk waits for room", least=0),
        "abort": Form("as `stall`, but where the walk would wait the run ends with an error", least=1),
        "benchmark": Form("as `stall`, but no kernel is called: what the walk itself costs", least=1),
    },
    "ready": {
        "work_steal": Form("a worker goes on with what it made ready, and takes from others when idle"),
        "fifo": Form("of the tasks that are ready, the first in program order starts first"),
        "priority": Form("of the tasks that are ready, one with the largest key starts first", True),
    },
    "start": {
        "immediate": Form("tasks run while the program is still being walked"),
        "threshold": Form("no task runs before n of them, or all, have been made", least=1),
        "after_build": Form("no task runs before all of them have been made"),
    },
    "streams": {
        "off": Form("tasks are in no streams"),
        "in_turn": Form(
            "every n-th task is in one stream: they start in program order, one at a time", least=1
        ),
        "by": Form("tasks with equal keys are in one stream: key modulo n, or any key if n is open", True, 0),
    },
    "timing": {
        "immediate": Form("a task starts as soon as it is ready and there is a worker for it"),
        "batched": Form("tasks start in groups of n, in program order, one group after the other", least=1),
        "interleaved": Form(
            "n streams at a time, in the order in which they begin, start a task in turn", least=1
        ),
        "rate_limit": Form("at most n tasks start per second, evenly spaced", least=1, most=10**9),
    },
    "pools": {
        "single": Form("every worker runs every task"),
        "by_exec_unit": Form(
            "kernels for cube cores run on the first n workers, or half of them if n is open, those for "
            "vector cores on the others",
            least=0,
        ),
        "custom": Form(
            "workers before the first bound run the tasks with key 0, those before the second key 1, ...; "
            "keys count modulo the number of pools",
            takes_key=True,
            takes_bounds=True,
            most_parts=MOST_POOLS,
        ),
    },
    "stores": {
        "streaming": Form(
            "stores go past the caches to tensors of n bytes or more, or of more than they hold if n is "
            "open, that no task reads",
            least=0,
        ),
        "cached": Form("every store goes through the caches"),
    },
    "trace": {
        "off": Form("nothing is recorded"),
        "tasks": Form("which worker ran each task, when, and which dispatcher made it"),
        "full": Form("as `tasks`, and when dispatchers made tasks and what stopped them"),
    },
    "deps": {
        "infer_tensor_map_exact": Form("tasks wait for each other where their regions share an element"),
        "infer_bytes_overlap": Form("tasks wait for each other where the bounds of their regions overlap"),
        "hybrid": Form("as `infer_tensor_map_exact`, and for the edges of `after=`"),
        "explicit": Form("tasks wait for edges and `P.seq` alone; it is checked that these suffice"),
        "explicit_unchecked": Form("as `explicit`, without the check"),
        "trust": Form("as `infer_tensor_map_exact`, but iterations of a P loop do not wait for each other"),
    },
}
"""Every policy by directive; the first of a directive is its default."""


def default_policy(directive: str) -> Policy:
    """Return the policy that a schedule has for a directive that it does not mention."""
    return Policy(directive, next(iter(POLICIES[directive])))


@record
class Schedule:
    """One policy per directive."""

    dispatch: Policy = default_policy("dispatch")
    window: Policy = default_policy("window")
    ready: Policy = default_policy("ready")
    start: Policy = default_policy("start")
    streams: Policy = default_policy("streams")
    timing: Policy = default_policy("timing")
    pools: Policy = default_policy("pools")
    stores: Policy = default_policy("stores")
    trace: Policy = default_policy("trace")
    deps: Policy = default_policy("deps")

    def policies(self) -> Iterator[Policy]:
        """Yield every policy, in the order of `POLICIES`."""
        return (getattr(self, directive) for directive in POLICIES)

    def chosen(self) -> Iterator[Policy]:
        """Yield the policies that are not the default."""
        return (policy for policy in self.policies() if policy != default_policy(policy.directive))

    def having(self, policy: Policy) -> Schedule:
        """Return the schedule with another policy for the directive of `policy`."""
        return replace(self, **{policy.directive: policy})


DEFAULT = Schedule()
"""The schedule of a program that says nothing about it."""
