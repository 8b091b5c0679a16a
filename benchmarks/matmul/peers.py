"""What products are compared to: OpenBLAS through numpy, and torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np

Peer = Callable[[], object]
Maker = Callable[[np.ndarray, np.ndarray, np.ndarray, int], Peer]


def numpy(x: np.ndarray, w: np.ndarray, out: np.ndarray, threads: int) -> Peer:
    """Return the product by numpy's library, which chooses its threads when it is loaded."""
    del threads
    return lambda: np.matmul(x, w, out=out)


def torch(x: np.ndarray, w: np.ndarray, out: np.ndarray, threads: int) -> Peer:
    """Return the product by torch, of a matrix that lies as its linear layers have it.

    Raises:
        ImportError: torch is not installed.
    """
    library = importlib.import_module("torch")
    library.set_num_threads(threads)
    left, weight, target = (library.from_numpy(a) for a in (x, np.ascontiguousarray(w.T), out))
    return lambda: library.mm(left, weight.mT, out=target)


PEERS: dict[str, Maker] = {"numpy": numpy, "torch": torch}
