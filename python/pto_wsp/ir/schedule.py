"""The schedule: how the tasks of a program run. It is data, and replacing it never changes a result.

A schedule has one policy per directive. In `.pto` text the policies that are not the default stand behind
the functions of a module:

    schedule  = "SCHEDULE" "{" newline { line } "}"
    line      = directive "=" name [ "(" arguments ")" ] newline
    arguments = key | count | key "," count | bounds
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

A task that lacks a name of a key has no key: it goes to any dispatcher, or has priority 0.
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
        takes_bounds: whether it has bounds.
    """

    doc: str
    takes_key: bool = False
    least: int | None = None
    most: int = 2**31 - 1
    takes_bounds: bool = False


WINDOW = 8192
"""The size of a window that is left open."""

MOST = 64
"""So many dispatchers can walk one program; partitions have one more than bounds."""

POLICIES: Mapping[str, Mapping[str, Form]] = {
    "dispatch": {
        "work_steal": Form("a dispatcher that is free takes the next piece of the program", False, 0, MOST),
        "round_robin": Form("the pieces of the program go to the dispatchers in turn", False, 0, MOST),
        "affinity": Form("tasks with equal keys go to one dispatcher: key modulo n", True, 0, MOST),
        "hash": Form("tasks with equal keys go to one dispatcher: hash of the key modulo n", True, 0, MOST),
        "dispatch_by": Form("the key is the number of the dispatcher, from 0 to n - 1", True, 1, MOST),
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
    "deps": {
        "infer_tensor_map_exact": Form("tasks wait for each other where their regions share an element"),
        "infer_bytes_overlap": Form("tasks wait for each other where the bounds of their regions overlap"),
        "hybrid": Form("as `infer_tensor_map_exact`, and for the edges of `after=`"),
        "explicit": Form("tasks wait for the edges of `after=` alone"),
        "trust": Form("iterations of a P loop are taken to be independent"),
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
    deps: Policy = default_policy("deps")

    def policies(self) -> Iterator[Policy]:
        """Yield every policy, in the order of `POLICIES`."""
        return (getattr(self, directive) for directive in POLICIES)

    def chosen(self) -> Iterator[Policy]:
        """Yield the policies that are not the default."""
        return (policy for policy in self.policies() if policy != default_policy(policy.directive))

    @property
    def is_walked(self) -> bool:
        """Whether some policy is about walks of the program: dispatchers, windows, streams or priorities."""
        of_walks = (self.dispatch, self.window, self.streams)
        return any(p != default_policy(p.directive) for p in of_walks) or self.ready.name == "priority"

    def having(self, policy: Policy) -> Schedule:
        """Return the schedule with another policy for the directive of `policy`."""
        return replace(self, **{policy.directive: policy})


DEFAULT = Schedule()
"""The schedule of a program that says nothing about it."""
