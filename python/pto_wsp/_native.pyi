"""The compiled module: the engine (and the planner)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ABI_VERSION: int
BYTECODE_VERSION: int
DTYPES: dict[str, int]
ROLES: dict[str, int]
OPCODES: dict[str, int]
AXIS_KINDS: dict[str, int]
SYMBOL_KINDS: dict[str, int]
CHANNEL_KINDS: dict[str, int]
MERGE_KINDS: dict[str, int]

class EngineError(Exception):
    """An error of the engine: `code` names it (kebab-case), `details` holds its facts."""

    code: str
    details: dict[str, int | str | list[int]]

class KernelLibrary:
    """A loaded kernel library.

    Raises:
        EngineError: `library-load-failed`, `bad-kernel-library`, `kernel-abi-mismatch`.
    """

    def __init__(self, path: str) -> None: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def scratch_bytes(self) -> list[int]:
        """Return what the tiles of each kernel take in a worker's scratch memory."""

    @property
    def table_hash(self) -> int: ...
    @property
    def has_native(self) -> bool:
        """Whether some of the kernels are written by hand."""

    def failure(self, number: int) -> tuple[str, str | None, int] | None:
        """Return why a hand-written kernel returned `number`: a message, and the file and line if known."""

    def call(
        self,
        index: int,
        arrays: tuple[object, ...],
        scalars: tuple[object, ...],
        scalar_dtypes: tuple[int, ...] = ...,
        task: int = 0,
        workspace_bytes: int = 0,
    ) -> tuple[int, list[int]]:
        """Run all blocks of one kernel on views; return 0 or the number of the run-time check that failed.

        The second part is what a failed check found. Ctrl-C on the main thread ends a loop of the kernel.

        Args:
            index: position in `names`.
            arrays: one array per view, of the parameter's dtype and rank.
            scalars: one number per scalar parameter.
            scalar_dtypes: the scalar parameters' dtypes, values of `DTYPES`.
            task: what the kernel sees as the task's number.
            workspace_bytes: size of the workspace that the kernel gets.
        """

class TaskDump:
    """Tasks and what they wait for, as the text of docs/task_dump.md."""

    def add(
        self, name: str, buffer_bytes: int, reused_bytes: int, before: list[int], arguments: list[str]
    ) -> None:
        """Add the next task in program order, none of which is complete.

        Args:
            name: of its kernel.
            buffer_bytes: tiles that share no memory.
            reused_bytes: tiles that share memory where they are not in use together.
            before: numbers of earlier tasks that it waits for, ascending.
            arguments: a line for each: its role, tensor and elements.
        """

    def text(self, verbose: bool) -> str: ...

class RunRecord:
    """What a traced run wrote down. Each call makes new int64 arrays, one row per task in program order."""

    @property
    def tasks(self) -> int: ...
    @property
    def workers(self) -> int: ...
    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the worker, and start and end in nanoseconds since the run began."""

    def dispatchers(self) -> NDArray[np.int64]:
        """Return the dispatcher that made each task."""

    def walks(self) -> NDArray[np.int64]:
        """Return [n, 4]: a dispatcher, the first of some tasks that it made, how many, and when it had.

        Times are in nanoseconds since the run began. Empty unless what dispatchers do was recorded.
        """

    def stalls(self) -> NDArray[np.int64]:
        """Return [n, 4]: a dispatcher, what it was stopped by, and from when to when.

        0 means the window, 1 the slices on their way, 2 a value that tasks write, 3 the pool of a task.
        """

    def stretches(self) -> NDArray[np.int64]:
        """Return [n, 3]: a worker, and from when to when it was at work for the run.

        The worker expanded tasks, found their dependences or took slices, and it ran tasks. Empty unless what
        dispatchers do was recorded, and in a run that one worker makes alone.
        """

    def dependences(self) -> NDArray[np.int64]:
        """Return [n, 4]: a task, one that depended on it, why, and the tensor, or -1 if there is none.

        0 means read after write, 1 write after read, 2 write after write, 3 `after=`. An update in place
        reads. Of each task the latest 8 are given.
        """

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the index of the TASK instruction, and the registers [tasks, registers].

        Registers of loops that are not around a task are meaningless.
        """

class RunResult:
    """What a run did."""

    @property
    def run(self) -> int:
        """The number of the run in this process."""

    @property
    def tasks(self) -> int: ...
    @property
    def run_ns(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def counters(self) -> Mapping[str, int | list[int]]:
        """Figures of the engine by name, `order_violations` among them if the run verified."""

    @property
    def flushed(self) -> list[int]:
        """What flush points read, in program order."""

    @property
    def merges(self) -> list[list[int]]:
        """Of a network, as in `RunOptions`, if they were recorded."""

    @property
    def record(self) -> RunRecord | None:
        """None unless the run was traced."""

class Calendar:
    """Which core runs which task when, for the arguments of one call.

    Attributes:
        kinds: per kind of core, how many.
        symbols: sizes and scalars that it was made for.
        elements: per tensor, a hash of its elements that decide, or 0.
        groups: per tensor, its memory.
        rows: task, core, second core or -1, start and end, in the order of starts.
        waits: per row, pairs of a core and how many of its first tasks must be complete.
    """

    kinds: list[int]
    symbols: list[int]
    elements: list[int]
    groups: list[int]
    rows: list[tuple[int, int, int, int, int]]
    waits: list[list[tuple[int, int]]]

    def __init__(
        self,
        kinds: list[int],
        symbols: list[int],
        elements: list[int],
        groups: list[int],
        rows: list[tuple[int, int, int, int, int]],
        waits: list[list[tuple[int, int]]],
    ) -> None: ...

class SimMachine:
    """The figures of a device that the simulator reads. Times are in cycles, amounts in bytes.

    Attributes:
        cores: per kind of core, how many.
        gm_rate: bytes per cycle of global memory, of all cores together.
        gm_core_rate: of these, for one core at most.
        l2_bytes: size of the cache that they share, or 0.
        l2_rate: its bytes per cycle.
        l2_core_rate: of these, for one core at most.
        l2_hit: cycles before the first byte.
        l2_miss: more of them where it does not hold a region.
        own_bytes: size of the cache that each core has of its own, or 0.
        dispatchers: how many.
        generate: to make a task.
        skip: to pass over a task of another dispatcher.
        dispatch: until a core sees a task.
        complete: until a dispatcher sees that a task is complete.
        records: tasks per dispatcher that are made and not seen complete.
        hz: cycles per second.
        begin: when dispatchers begin.
    """

    cores: list[int]
    gm_rate: float
    gm_core_rate: float
    l2_bytes: int
    l2_rate: float
    l2_core_rate: float
    l2_hit: float
    l2_miss: float
    own_bytes: int
    dispatchers: int
    generate: float
    skip: float
    dispatch: float
    complete: float
    records: int
    hz: float
    begin: float

class SimCost:
    """What a task costs.

    Attributes:
        kinds: bit i: it takes a core of kind i.
        cycles: on cores that have their whole transfer rates.
        ends: of these, cycles before transfers begin or after they end.
        loaded: bytes per view.
        stored: bytes per view.
        spilled: bytes between a core's own memories, by way of global memory.
        operations: floating-point operations.
    """

    kinds: int
    cycles: float
    ends: float
    loaded: list[int]
    stored: list[int]
    spilled: int
    operations: int

class SimNetwork:
    """What the processes of a network did. Times are in cycles."""

    @property
    def processes(self) -> list[tuple[int, float, float, float, float, list[float], list[float]]]:
        """Per process: tasks, busy, waiting for cores, waits, end; per tensor: to receive, to send."""

    @property
    def merges(self) -> list[list[int]]:
        """Per tensor, the senders of the tokens of a channel that is merged by time."""

    @property
    def channels(self) -> list[tuple[int, int, float, float, int, float, float]]:
        """Per channel: tensor, tokens, queued, buffers in use times cycles, most, first and last receipt."""

    @property
    def tokens(self) -> list[tuple[int, int, int, float, float, float, float]]:
        """Per token: tensor, sender, receiver, and when it was opened, sent, received and freed."""

    @property
    def spans(self) -> list[tuple[int, int, float, float]]:
        """Per task: process, number of its site, start and end."""

class SimResult:
    """What a simulation found. Times are in cycles."""

    @property
    def tasks(self) -> int: ...
    @property
    def cycles(self) -> float: ...
    @property
    def busy(self) -> list[float]:
        """Per kind of core, cycles of all its cores."""

    @property
    def idle(self) -> list[list[float]]:
        """Per kind of core and reason, cycles of all its cores."""

    @property
    def generating(self) -> list[float]: ...
    @property
    def stalled(self) -> list[float]: ...
    @property
    def stalls(self) -> int:
        """How often dispatchers stalled."""

    @property
    def made(self) -> list[int]: ...
    @property
    def kernels(self) -> list[int]:
        """Per cost, the number of its kernel."""

    @property
    def calls(self) -> list[int]:
        """Per cost, tasks."""

    @property
    def spent(self) -> list[float]:
        """Per cost, cycles on cores."""

    @property
    def gm_bytes(self) -> int: ...
    @property
    def l2_bytes(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def prefetched_bytes(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def max_live(self) -> int:
        """Most tasks between the oldest that is not complete and the newest."""

    @property
    def longest(self) -> float:
        """Cycles of the longest chain of tasks, or 0 if tasks were not recorded."""

    @property
    def network(self) -> SimNetwork | None:
        """None for a workload."""

    @property
    def record(self) -> RunRecord | None:
        """Where tasks come from, without times; None if tasks were not recorded."""

    def times(self) -> dict[str, NDArray[Any]]:
        """Return columns with a row per task, if tasks were recorded.

        `site`, `cost`, `dispatcher`, `kind`, `core`, `second`, `cause` and `because` are numbers; `made`,
        `ready`, `start` and `end` are cycles.
        """

class Ownership(enum.Enum):
    """Which dispatcher runs a unit of work."""

    CLAIM = 0
    ROUND_ROBIN = 1
    KEY = 2
    HASH = 3
    PARTITION = 4

class Deps(enum.Enum):
    """Which tasks are ordered by what they touch."""

    EXACT = 0
    BYTES = 1
    TRUST = 2
    NONE = 3

class Ready(enum.Enum):
    """Which of the tasks that are ready starts first."""

    OWN = 0
    FIFO = 1
    ORDERED = 2

class WindowMode(enum.Enum):
    """What happens where the window has no room."""

    STALL = 0
    ABORT = 1
    BENCHMARK = 2

class Start(enum.Enum):
    """When the first task starts."""

    IMMEDIATE = 0
    THRESHOLD = 1
    AFTER_BUILD = 2

class Streams(enum.Enum):
    """Which tasks are in one stream."""

    OFF = 0
    IN_TURN = 1
    BY_KEY = 2

class Waits(enum.Enum):
    """What orders the tasks of a run with several workers."""

    MAPS = 0
    SYMBOLIC = 1

class RunOptions:
    """How a run behaves besides its result.

    Attributes:
        verifies: check afterwards that tasks kept their order (`order_violations` of the counters).
        waits: what orders tasks; `Waits.SYMBOLIC` gives way to maps where they are needed.
        deps: which tasks are ordered by what they touch.
        checks_edges: check that what the program says of order suffices.
        proves_iterations: leave out the check of iterations where tensors of a call are different arrays.
        proves_instances: the same of instances.
        proves_edges: the same of edges.
        dispatchers: how many; 0 = one per worker, up to 8.
        ownership: which of them runs a unit of work.
        bounds: of a partition, the first task of each dispatcher but the first.
        streams: which tasks are in one stream.
        num_streams: how many there are; 0 = one per key.
        window: tasks that may be recorded and not complete.
        window_mode: what happens where it has no room.
        ready: which of the tasks that are ready starts first.
        start: when the first task starts.
        threshold: how many tasks `Start.THRESHOLD` waits for.
        batch: number of tasks in a group; 0 = no groups.
        turns: values that take turns at a time; 0 = none.
        in_flight: values whose tasks may be in flight; 0 = any number.
        prefetch: values ahead whose inputs are fetched; 0 = none.
        starts_per_second: bound on the tasks that start; 0 = no bound.
        streaming_bytes: least of a tensor that is stored past the caches; 0 = what they can hold.
        num_pools: pools that workers are in; 0 = any worker runs any task.
        pool_bounds: the first worker of each pool but the first; empty = equal pools.
        pool_shares: proportions of the workers of pools; empty = the bounds decide.
        pool_size: workers of each pool, which decides the number of pools; 0 = `num_pools` does.
        pools_are_soft: whether a worker runs tasks of other pools where its own has none.
        balances: whether the longest of the ready tasks starts first.
        merges: of a network, per tensor, the senders of the tokens of a channel that is merged by time.
        records_merges: whether the result of a network has them.
        makes_calendar: whether tasks run by a calendar that is made for the arguments.
    """

    merges: list[list[int]]
    records_merges: bool
    verifies: bool
    waits: Waits
    deps: Deps
    checks_edges: bool
    proves_iterations: bool
    proves_instances: bool
    proves_edges: bool
    dispatchers: int
    ownership: Ownership
    bounds: list[int]
    streams: Streams
    num_streams: int
    window: int
    window_mode: WindowMode
    ready: Ready
    start: Start
    threshold: int
    batch: int
    turns: int
    in_flight: int
    prefetch: int
    starts_per_second: int
    streaming_bytes: int
    num_pools: int
    pool_bounds: list[int]
    pool_shares: list[int]
    pool_size: int
    pools_are_soft: bool
    balances: bool
    makes_calendar: bool

class Executable:
    """A validated program.

    Raises:
        EngineError: `bad-bytecode`, `bytecode-version`, `kernel-table-mismatch`.
    """

    def __init__(
        self,
        bytecode: bytes,
        library: KernelLibrary,
        shared: Executable | None = None,
        walk: str | None = None,
    ) -> None:
        """Load a program; `shared` is the same under another schedule: `cancel` stops runs of both.

        `walk` is the path of a library with the walk as generated source.
        """

    def run(
        self,
        arrays: tuple[object, ...],
        scalars: tuple[int | float | bool | None, ...],
        workers: int = 0,
        trace: int = 0,
        jitter: int = 0,
        tracks: bool = False,
        check: bool = False,
        options: RunOptions = ...,
        progress: Callable[[int], object] | None = None,
        time_limit_ns: int = 0,
        calendar: Calendar | None = None,
    ) -> RunResult:
        """Bind, check and run; the GIL is released meanwhile.

        Args:
            arrays: one per tensor of the program; anything with a buffer, or a bfloat16 array of ml_dtypes.
            scalars: one value per symbol; None infers a size from the arrays.
            workers: threads, the calling one included; 0 means one per core.
            trace: record when and where each task ran.
            jitter: if not 0, the seed of random delays before tasks (for tests).
            tracks: order tasks by their hazards with one worker too (for tests).
            check: check that iterations of P loops are independent.
            options: what the schedule says.
            progress: called now and then, and at the end, with the number of tasks that are complete. An
                exception in it stops the run and is raised.
            time_limit_ns: if not 0, the run ends so long after it began.
            calendar: where and in which order tasks run, or None.

        Raises:
            EngineError: a mistake in the arguments or regions, before anything has run; one that depends on
                what tasks write, with the detail `late`: how many tasks have run before it; `kernel-failed`
                after some tasks have; `iterations-conflict` and `unknown-rows` if that is checked;
                `nested-run`, `run-in-flight-at-fork`, `run-cancelled`, `time-limit`, `stuck`.
        """

    def submit(
        self,
        arrays: tuple[object, ...],
        scalars: tuple[int | float | bool | None, ...],
        workers: int = 0,
        trace: int = 0,
        jitter: int = 0,
        tracks: bool = False,
        check: bool = False,
        options: RunOptions = ...,
        progress: Callable[[int], object] | None = None,
        time_limit_ns: int = 0,
        earlier: Sequence[Run] | None = None,
        calendar: Calendar | None = None,
    ) -> Run | None:
        """Bind, check and begin a run; the parameters are those of `run`. `progress` is called by any thread.

        `earlier` holds runs of a session. The run seems to begin after them: its tasks wait for those of
        their tasks that conflict with them. Later runs can follow the run only if this is not None.

        Returns:
            The run. None if it must begin after `earlier` runs: tasks cannot be compared, or one has failed.

        Raises:
            EngineError: as `run` raises before anything has run; `arrays-in-flight`.
        """

    def make_calendar(
        self,
        arrays: tuple[object, ...],
        scalars: tuple[object, ...],
        workers: int,
        options: RunOptions,
    ) -> tuple[Calendar, RunRecord]:
        """Return a calendar for that many workers, 0 meaning one per core, and where its tasks come from.

        Raises:
            EngineError: as `run` raises before anything has run; `calendar-undecided`, `calendar-too-large`.
        """

    def make_simulated_calendar(
        self,
        arrays: tuple[object, ...],
        scalars: tuple[object, ...],
        options: RunOptions,
        machine: SimMachine,
        find: Callable[[int, list[tuple[int, ...]], list[int]], SimCost],
        matters: list[list[bool]],
        places: list[list[tuple[list[int], list[int]]]],
    ) -> tuple[Calendar, RunRecord]:
        """Return a calendar for the cores of a machine; the parameters are those of `simulate`."""

    def simulate(
        self,
        arrays: tuple[object, ...],
        scalars: tuple[object, ...],
        options: RunOptions,
        machine: SimMachine,
        find: Callable[[int, list[tuple[int, ...]], list[int]], SimCost],
        matters: list[list[bool]],
        places: list[list[tuple[list[int], list[int]]]],
        flushed: list[int],
        records_times: bool,
        latencies: list[int],
        calendar: Calendar | None = None,
    ) -> SimResult:
        """Return how long a run takes on a machine; no kernel is called.

        Args:
            arrays: as `run` takes them; only what decides is read.
            scalars: as `run` takes them.
            options: as `run` takes them.
            machine: the machine.
            find: the cost of a call, from its kernel, the shapes of views and the bits of scalars.
            matters: per kernel and scalar, whether its cost depends on it.
            places: per kernel and view, the numbers of the scalars and of the views that decide which part
                of it is moved; an empty list for a kernel that moves its views as a whole.
            flushed: what flush points read.
            records_times: write down each task, however many there are.
            latencies: per tensor of a network, cycles from a send to its receipt, or -1 - s where symbol s
                has them.
            calendar: where and in which order tasks run, or None.
        """

    def cancel(self) -> None:
        """Stop all runs that are under way; who waits for one gets `run-cancelled`."""

class Run:
    """A run that was submitted. It holds the buffers of its arrays; dropping it cancels it and waits."""

    @property
    def number(self) -> int:
        """The number of the run in this process."""

    @property
    def done(self) -> bool:
        """Whether the run has ended."""

    def wait(self) -> RunResult:
        """Lend the calling thread to the run until it has ended; raises as `Executable.run` does."""

    def cancel(self) -> None:
        """Stop the run: `wait` then raises `run-cancelled`."""

class FloatEnvironment:
    """`with FloatEnvironment():` runs Python code in the floating-point modes of tasks."""

    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

def plan_chunk_size(
    lengths: NDArray[np.integer],
    num_heads: int,
    chunk_min: int,
    chunk_max: int,
    max_work_units: int,
    empty_item: bool,
) -> int:
    """Return the chunk size for int32 or int64 lengths `[batch]`; 0 if a parameter is invalid."""

def plan_total_work(lengths: NDArray[np.integer], num_heads: int, chunk_size: int, empty_item: bool) -> int:
    """Return the number of descriptors of a plan; -1 if a parameter is invalid."""

def plan_check(
    lengths: NDArray[np.integer],
    num_heads: int,
    chunk_size: int,
    balance_chunks: bool,
    empty_item: bool,
    tiers: NDArray[np.int32],
) -> tuple[int, int]:
    """Return the `PlanResult` and the number of descriptors; `tiers` has rows (id, min, max)."""

def plan_generate(
    lengths: NDArray[np.integer],
    num_heads: int,
    chunk_size: int,
    balance_chunks: bool,
    empty_item: bool,
    tiers: NDArray[np.int32],
    out: NDArray[np.void],
    num_threads: int,
) -> tuple[int, int]:
    """Write the plan to `out`, an array of 24-byte records; return what `plan_check` returns."""

class BalancedConfig:
    """A checked or unchecked configuration of the balanced planner."""

    @property
    def is_valid(self) -> bool: ...
    @property
    def grain(self) -> int:
        """Rows are cut at multiples of this; 0 if there is no usable one."""

def balanced_config(
    num_workers: int,
    num_heads: int,
    group_size: int,
    q_tile: int,
    kv_tile: int,
    page_size: int,
    item_cost: int,
    q_rows_per_cost: int,
    window_left: int,
    causal: bool,
    batch_invariant: bool,
    reject_zero_length: bool,
) -> BalancedConfig: ...

class BalancedPlanner:
    """Plans into memory that it is given; `max_query_total` of 0 means one query per request."""

    def __init__(
        self, config: BalancedConfig, max_batch: int, max_query_total: int, tiers: NDArray[np.int32]
    ) -> None: ...
    @property
    def layout(self) -> tuple[int, int, int, int, int]:
        """Item capacity, offsets of merge_indptr, merge_rows and items, bytes; all 0 for bad limits."""

    def attach(self, memory: NDArray[np.uint8]) -> None: ...
    def max_partials(self, kv_total: int) -> int: ...
    def plan(
        self, kv_lens: NDArray[np.integer], qo_lens: NDArray[np.integer] | None = None
    ) -> tuple[int, int, int, int, int, int]:
        """Return the `PlanResult`, items, rows to merge, slots, total cost and makespan."""
