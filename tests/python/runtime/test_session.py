"""Sessions: launches run concurrently with the results of one after another, and contracts are checked."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any, cast

import numpy as np
import pytest

from pto_wsp import (
    Deps,
    In,
    InOut,
    Out,
    P,
    Program,
    Schedule,
    Session,
    StartPolicy,
    Tensor,
    Tile,
    f32,
    graph,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    ContractBroken,
    KernelFailed,
    LaunchSkipped,
    NotYetSupported,
    RunInterrupted,
    SessionClosed,
    UnknownParameter,
    WrongShape,
    WrongValue,
)
from tests.slow import examples

ROWS = 24


@kernel
def mix(x: In[Tile[8, 64, f32]], y: InOut[Tile[8, 64, f32]]):
    pto.store(y, y * 0.5 + x)


@kernel
def copy(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]):
    pto.store(y, x + 1.0)


@kernel
def spin(x: InOut[Tile[8, 64, f32]]):
    t = pto.load(x)
    first = t[0, 0]
    while first < 1.0e30:
        t = pto.load(x)
        first = t[0, 0]
    pto.store(x, t)


@kernel
def fail(x: InOut[Tile[8, 64, f32]]):
    t = pto.load(x)
    first = t[0, 0]
    pto.check(first > 1.0e30, "too small")
    pto.store(x, t)


@workload
def mixing(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
    for r in P.tiles("n", 8):
        mix[r](x=X[r], y=Y[r])


@workload
def copying(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
    for r in P.tiles("n", 8):
        copy[r](x=X[r], y=Y[r])


@workload
def spinning(X: Tensor[f32, "n", 64]):
    for r in P.tiles("n", 8):
        spin[r](x=X[r])


@workload
def copying_then_spinning(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], Z: Tensor[f32, 8, 64]):
    for r in P.tiles("n", 8):
        copy[r](x=X[r], y=Y[r])
    spin(x=Z)


@workload
def failing(X: Tensor[f32, "n", 64]):
    for r in P.tiles("n", 8):
        fail[r](x=X[r])


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    made = (mixing, copying, spinning, copying_then_spinning, failing)
    return {each.name: each.compile() for each in made}


def zeros(count: int) -> list[np.ndarray]:
    return [np.zeros((ROWS, 64), np.float32) for _ in range(count)]


def release(endless: np.ndarray) -> None:
    """End `spinning`, which reads the first element of each tile: it is written last."""
    endless[np.arange(len(endless)) % 8 != 0] = 2.0e30
    endless[::8, 1:] = 2.0e30
    endless[::8, 0] = 2.0e30


def test_launches_have_the_results_of_one_after_another(programs: dict[str, Program]) -> None:
    """Random programs over a few arrays and parts of them, launched without a wait."""
    for seed in range(examples(40)):
        rng = np.random.default_rng(seed)
        whole = [rng.standard_normal((ROWS, 64), np.float32) for _ in range(4)]
        parts = [*whole, *(a[: ROWS // 2] for a in whole), *(a[ROWS // 2 :] for a in whole)]
        expected = [a.copy() for a in whole]
        same = [*expected, *(a[: ROWS // 2] for a in expected), *(a[ROWS // 2 :] for a in expected)]
        calls = []
        for _ in range(12):
            x, y = rng.choice(len(parts), 2, replace=False)
            if parts[x].shape == parts[y].shape and not np.shares_memory(parts[x], parts[y]):
                calls.append((("mixing", "copying")[rng.integers(2)], x, y))
        for name, x, y in calls:
            programs[name](X=same[x], Y=same[y])
        with Session() as session:
            for name, x, y in calls:
                session.launch(programs[name], X=parts[x], Y=parts[y], workers=int(rng.integers(1, 4)))
        for found, wanted in zip(whole, expected, strict=True):
            assert np.array_equal(found, wanted), seed


def test_each_hazard_is_named(programs: dict[str, Program]) -> None:
    a, b, c, endless = zeros(4)
    session = Session()
    first = session.launch(programs["spinning"], X=endless)
    read = session.launch(programs["copying"], X=endless, Y=b)
    write = session.launch(programs["copying"], X=a, Y=endless)
    other = session.launch(programs["copying"], X=a, Y=c)
    other.wait()
    assert [(w.number, w.hazard, w.tensor) for w in read.waits] == [(first.number, "read after write", "X")]
    assert [(w.number, w.name, w.hazard) for w in write.waits] == [
        (first.number, first.name, "write after write"),
        (read.number, read.name, "write after read"),
    ]
    assert not other.waits and not read.done and not write.done
    release(endless)
    session.wait()
    assert (endless == 1).all() and (b == np.float32(2.0e30)).all()


def test_independent_launches_run_at_the_same_time(programs: dict[str, Program]) -> None:
    """A launch that never ends by itself does not keep another one from ending."""
    endless, x, y = zeros(3)
    with Session() as session:
        first = session.launch(programs["spinning"], X=endless, workers=1)
        session.launch(programs["copying"], X=x, Y=y).wait()
        assert (y == 1).all() and not first.done
        release(endless)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_tasks_begin_before_the_earlier_launch_has_ended(programs: dict[str, Program], workers: int) -> None:
    """Read after write, write after read and write after write; the first launch does not end by itself."""
    a, b, c, d, endless = *zeros(4), np.zeros((8, 64), np.float32)
    a[:] = 1
    with Session() as session:
        first = session.launch(programs["copying_then_spinning"], X=a, Y=b, Z=endless, workers=workers)
        read = session.launch(programs["copying"], X=b, Y=c, workers=workers)
        write = session.launch(programs["copying"], X=d, Y=a, workers=workers)
        again = session.launch(programs["copying"], X=c, Y=b, workers=workers)
        while not ((a == 1).all() and (b == 4).all() and (c == 3).all()):
            time.sleep(0.001)
        assert [launch.waits[0].number for launch in (read, write, again)] == [first.number] * 3
        assert not any(launch.done for launch in (first, read, write, again))
        release(endless)


def test_data_that_decide_are_complete_before_a_launch_begins() -> None:
    """The second launch reads its lengths when it begins: it cannot begin before the first one has ended."""

    @kernel
    def count(x: In[Tile[1, 1, i32]], n: Out[Tile[1, 1, i32]]):
        pto.store(n, x + 1)

    @workload
    def counting(X: Tensor[i32, "b", 1], N: Tensor[i32, "b", 1]):
        for b in P("b"):
            count[b](x=X[b : b + 1], n=N[b : b + 1])

    @workload
    def repeating(N: Tensor[i32, "b", 1], Y: Tensor[f32, "b", 8, 64]):
        for b in P("b"):
            for i in P.range(N[b, 0]):
                grow[b, i](y=Y[b])

    @kernel
    def grow(y: InOut[Tile[8, 64, f32]]):
        pto.store(y, y + 1.0)

    counts, repeats = counting.compile(), repeating.compile()
    x, n, y = np.arange(40, dtype=np.int32)[:, None], np.zeros((40, 1), np.int32), np.zeros((40, 8, 64), "f4")
    with Session() as session:
        session.launch(counts, X=x, N=n)
        session.launch(repeats, N=n, Y=y)
        session.launch(counts, X=x * 2, N=n)
    assert (y[:, 0, 0] == np.arange(1, 41)).all() and (n == x * 2 + 1).all()


def test_launches_of_several_kinds_of_schedules(programs: dict[str, Program]) -> None:
    """Kept graphs, symbolic waits and ordered tasks: all launches have the results of one after another."""
    schedules = [
        Schedule(),
        Schedule().task_graph(start=StartPolicy.after_build()),
        Schedule().task_graph(deps=Deps.symbolic()),
        Schedule().order_by(lambda t: -t.r),
        Schedule().concurrent(lambda t: t.r, max=1),
    ]
    made = [programs["mixing"], *(mixing.compile() for _ in schedules[1:])]
    for program, schedule in zip(made[1:], schedules[1:], strict=True):
        program.reschedule(schedule)
    whole = [np.full((ROWS, 64), i, np.float32) for i in range(3)]
    expected = [a.copy() for a in whole]
    pairs = [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0)]
    for x, y in pairs:
        made[0](X=expected[x], Y=expected[y])
    with Session() as session:
        for program, (x, y) in zip(made, pairs, strict=True):
            session.launch(program, X=whole[x], Y=whole[y])
    for found, wanted in zip(whole, expected, strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("is_done", [True, False])
def test_an_error_stops_what_depends_on_it_and_nothing_else(
    programs: dict[str, Program], is_done: bool
) -> None:
    """Also if it has failed before the others are launched; until the caller has seen the error."""
    a, b, c, d, e = zeros(5)
    session = Session()
    failed = session.launch(programs["failing"], X=a)
    while is_done and not failed.done:
        time.sleep(0.001)
    skipped = session.launch(programs["copying"], X=a, Y=b)
    after = session.launch(programs["copying"], X=b, Y=c)
    other = session.launch(programs["copying"], X=d, Y=e)
    other.wait()
    for launch in (after, skipped):
        with pytest.raises(LaunchSkipped):
            launch.wait()
    with pytest.raises(KernelFailed):
        failed.wait()
    with pytest.raises(KernelFailed):
        session.wait()
    assert (e == 1).all() and not b.any() and not c.any()
    session.launch(programs["copying"], X=a, Y=b).wait()
    assert (b == a + 1).all()


def test_what_waits_for_a_failed_launch_is_skipped(programs: dict[str, Program]) -> None:
    a, b, c, endless = zeros(4)
    session = Session()
    session.launch(programs["spinning"], X=endless)
    failed = session.launch(programs["failing"], X=endless)
    skipped = session.launch(programs["copying"], X=endless, Y=b)
    after = session.launch(programs["copying"], X=b, Y=c)
    release(endless)
    failed_first = session.launch(programs["copying"], X=a, Y=zeros(1)[0])
    failed_first.wait()
    failed.wait()
    skipped.wait()
    after.wait()
    assert (b == np.float32(2.0e30)).all()
    endless[:] = 0
    session = Session()
    session.launch(programs["spinning"], X=endless)
    stopped = session.launch(programs["copying"], X=endless, Y=b)
    after = session.launch(programs["copying"], X=b, Y=c)
    session.launches[0].cancel()
    for launch in (stopped, after):
        with pytest.raises(LaunchSkipped, match="was skipped"):
            launch.wait()
    with pytest.raises(RunInterrupted):
        session.wait()


def test_leaving_by_an_exception_cancels(programs: dict[str, Program]) -> None:
    (endless,) = zeros(1)
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), Session() as session:
        session.launch(programs["spinning"], X=endless)
        session.launch(programs["spinning"], X=endless)
        raise ZeroDivisionError
    assert time.monotonic() - start < 30 and all(launch.done for launch in session.launches)
    with pytest.raises(SessionClosed):
        session.launch(programs["spinning"], X=endless)


def test_a_session_forgets_launches_that_succeeded(programs: dict[str, Program]) -> None:
    """Memory of a session that lives as long as a server does not grow, nor does a chain of launches."""
    provider = graph(programs["copying"]).provides("Y", after="copy")
    alive: list[weakref.ref[Any]] = []
    with Session() as session:
        a = zeros(1)[0]
        for _ in range(20):
            b = np.empty_like(a)
            alive += [weakref.ref(session.launch(provider, X=a, Y=b)), weakref.ref(b)]
            a = b
        session.wait()
        assert session.launches == () and session.num_launches == 20
        gc.collect()
        assert [ref() for ref in alive if ref() is not None] == [a]
        taken = np.empty_like(a)
        session.launch(graph(programs["copying"]).requires("X", from_=provider), X=a, Y=taken)


def test_threads_share_a_session(programs: dict[str, Program]) -> None:
    """Each thread adds to one array, in any order: the number of additions is what counts."""
    (total,), ones = zeros(1), np.ones((ROWS, 64), np.float32)

    @kernel
    def add(x: In[Tile[8, 64, f32]], y: InOut[Tile[8, 64, f32]]):
        pto.store(y, y + x)

    @workload
    def adding(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
        for r in P.tiles("n", 8):
            add[r](x=X[r], y=Y[r])

    program = adding.compile()
    with Session() as session:
        threads = [
            threading.Thread(target=lambda: [session.launch(program, X=ones, Y=total) for _ in range(10)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (total == 40).all() and session.num_launches == 40


# --- contracts ---


def test_contracts_hold(programs: dict[str, Program]) -> None:
    a, b, c = zeros(3)
    first = graph(programs["copying"], "first").provides("Y", after="copy")
    second = graph(programs["mixing"], "second").requires("X", from_=first).provides("Y", after=["mix"])
    with Session() as session:
        read = session.launch(first, X=a, Y=b)
        write = session.launch(second, X=b, Y=c)
        session.order(b, reads=[write], writes=[read])
        session.order(c, writes=[write])
    assert (c == 1).all() and "provides ['Y'], requires ['X']" in repr(second)


def test_broken_contracts_are_named(programs: dict[str, Program]) -> None:
    a, b, c = zeros(3)
    first = graph(programs["copying"], "first").provides("Y", after="copy")
    second = graph(programs["mixing"]).requires("X", from_=first)
    with pytest.raises(ContractBroken, match="`copy` writes `Y`; expected that `mix` alone"):
        graph(programs["copying"]).provides("Y", after="mix")
    with pytest.raises(UnknownParameter, match="no parameter `Z`"):
        graph(programs["copying"]).requires("Z", from_=first)
    with pytest.raises(ContractBroken, match="no kernel writes `X`"):
        graph(programs["copying"]).provides("X", after=[])
    with Session() as session:
        silent = graph(programs["copying"], "silent")
        session.launch(silent, X=a, Y=b)
        with pytest.raises(ContractBroken, match=r'help: add `\.provides\("Y", after=\.\.\.\)` to `silent`'):
            session.launch(graph(programs["mixing"]).requires("X", from_=silent), X=b, Y=c)
    with Session() as session:
        with pytest.raises(ContractBroken, match="no earlier launch of `first` provides the array of `X`"):
            session.launch(second, X=b, Y=c)
        read = session.launch(first, X=a, Y=b)
        with pytest.raises(ContractBroken, match="no earlier launch"):
            session.launch(second, X=a, Y=c)
        write = session.launch(second, X=b, Y=c)
        with pytest.raises(ContractBroken, match="`mixing` writes the array, found that it does not"):
            session.order(b, reads=[read], write=write)
        with pytest.raises(ContractBroken, match="launch 1 of `mixing` before launch 2 of `copying`"):
            session.order(c, writes=[write, session.launch(programs["copying"], X=a, Y=c), write])


def test_contracts_of_other_types_are_refused(programs: dict[str, Program]) -> None:
    (a,) = zeros(1)
    with pytest.raises(WrongValue, match="`from_`"):
        graph(programs["copying"]).requires("X", from_=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(WrongValue, match="`name`"):
        graph(programs["copying"], 3)  # pyright: ignore[reportArgumentType]
    with Session() as session:
        for writes in (None, [], [3]):
            with pytest.raises(WrongValue, match="launches of this session"):
                session.order(a, writes=writes)  # pyright: ignore[reportArgumentType]


def test_mistakes_of_calls_are_those_of_programs(programs: dict[str, Program]) -> None:
    with Session() as session, pytest.raises(WrongShape):
        session.launch(programs["copying"], X=np.zeros((3, 64), np.float32), Y=np.zeros((4, 64), np.float32))
    with Session() as session, pytest.raises(WrongValue, match="expected a compiled program, found Workload"):
        session.launch(cast(Program, copying))
    with pytest.raises(NotYetSupported):
        __import__("copy").copy(session)


def test_interp_takes_part() -> None:
    a, b, c = zeros(3)
    program: Any = copying.compile("interp")
    with Session() as session:
        session.launch(program, X=a, Y=b)
        session.launch(program, X=b, Y=c)
    assert (c == 2).all()
