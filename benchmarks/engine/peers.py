"""Building and calling the peers: a plain loop, gcc's tasks with `depend`, oneTBB's flow graph."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.calibrate import compiler

HERE = Path(__file__).parent
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp"]


@dataclass
class Peers:
    """The loaded peers.

    Attributes:
        missing: why one of them is not there, by name.
    """

    library: ctypes.CDLL
    missing: dict[str, str]

    @property
    def has_tbb(self) -> bool:
        """Whether oneTBB takes part."""
        return not self.missing

    def graph(self, name: str, n: int) -> Graph:
        """Return one of the graphs of graphs.hpp with its edges."""
        return Graph(self.library, self.library.graph_make(name.encode(), n))

    @contextmanager
    def busy_core(self, core: int) -> Iterator[None]:
        """Keep a core busy meanwhile."""
        self.library.busy_start(core)
        try:
            yield
        finally:
            self.library.busy_stop()


@dataclass
class Graph:
    """A graph that the peers can run."""

    library: ctypes.CDLL
    handle: int

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return self.library.graph_tasks(self.handle)

    def ns_per_task(self, peer: str, workers: int) -> tuple[float, float]:
        """Build and run once; return the nanoseconds per task of building, and of both."""
        times = (ctypes.c_double * 2)()
        getattr(self.library, f"run_{peer}")(self.handle, workers, times)
        return times[0] / self.tasks, (times[0] + times[1]) / self.tasks

    def total(self, peer: str, workers: int) -> Callable[[], float]:
        """Return a function that builds and runs, and returns the nanoseconds per task."""
        return lambda: self.ns_per_task(peer, workers)[1]

    def build(self, peer: str, workers: int) -> Callable[[], float]:
        """Return a function that builds and runs, and returns the nanoseconds per task of building."""
        return lambda: self.ns_per_task(peer, workers)[0]

    def close(self) -> None:
        """Free the graph."""
        self.library.graph_free(self.handle)


def load(folder: Path) -> Peers:
    """Build the peers into `folder`; without oneTBB's headers (extra `bench`), without oneTBB."""
    found = _tbb()
    flags = [] if found is None else ["-DWITH_TBB", f"-I{found / 'include'}"]
    libraries = [] if found is None else [str(next((found / "lib").glob("libtbb.so.*")))]
    libraries += [] if found is None else [f"-Wl,-rpath,{found / 'lib'}"]
    library = folder / "peers.so"
    command = [*compiler(), *FLAGS, *flags, str(HERE / "peers.cpp"), "-o", str(library), *libraries]
    subprocess.run(command, check=True)
    missing = {} if found else {"oneTBB": "its headers are not installed (pip install tbb-devel)"}
    return Peers(_declare(ctypes.CDLL(str(library))), missing)


def _tbb() -> Path | None:
    prefixes = [Path(sys.prefix), Path("/usr")]
    found = (
        p
        for p in prefixes
        if (p / "include/tbb/flow_graph.h").exists() and any((p / "lib").glob("libtbb.so.*"))
    )
    return next(found, None)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer = ctypes.c_void_p
    library.graph_make.restype, library.graph_make.argtypes = pointer, [ctypes.c_char_p, ctypes.c_int]
    for name in ("graph_tasks", "graph_edges"):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_int64, [pointer]
    library.graph_free.argtypes = [pointer]
    for name in ("run_loop", "run_libgomp", "run_tbb"):
        if hasattr(library, name):
            getattr(library, name).argtypes = [pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_double)]
    return library
