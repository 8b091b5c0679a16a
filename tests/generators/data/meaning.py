"""What the kernels, axes and groups of random programs mean in plain Python."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pto_wsp import Ragged, Sparse


class V:
    """Some elements of an array, for reference kernels."""

    def __init__(self, array: np.ndarray, at: object) -> None:
        self.array = array
        self.at = at

    def get(self) -> np.ndarray:
        return self.array[self.at].copy()  # pyright: ignore

    def set(self, values: np.ndarray) -> None:
        self.array[self.at] = values  # pyright: ignore


@dataclass(frozen=True)
class Row:
    """A range of places."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, part: slice) -> Row:
        assert 0 <= part.start <= part.stop <= len(self)
        return Row(self.start + part.start, self.start + part.stop)

    @property
    def extent(self) -> int:
        return len(self)


class Axis:
    """A ragged or sparse axis, or groups, as the plain Python sees it."""

    def __init__(self, offsets: np.ndarray, indices: np.ndarray | None = None) -> None:
        self.offsets = offsets
        self.indices = indices

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Row:
        return Row(int(self.offsets[row]), int(self.offsets[row + 1]))

    @property
    def all(self) -> Row:
        return Row(int(self.offsets[0]), int(self.offsets[-1]))

    @property
    def extent(self) -> int:
        return len(self.all)

    def rows(self, places: Row) -> np.ndarray:
        assert self.indices is not None
        return self.indices[places.start : places.stop, 0].astype(int)

    def sel(self, row: int | None = None) -> list[int]:
        return [int(i) for i in self.rows(self.all if row is None else self[row])]


def tiles(axis: int | Row | Axis, tile: int) -> list[Row]:
    whole = Row(0, axis) if isinstance(axis, int) else axis.all if isinstance(axis, Axis) else axis
    return [Row(i, min(i + tile, whole.stop)) for i in range(whole.start, whole.stop, tile)]


def group_by(keys: np.ndarray, groups: int) -> Axis:
    flat = keys.ravel()
    counts = np.bincount(flat, minlength=groups)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return Axis(offsets, np.argsort(flat, kind="stable")[:, None])


# --- the kernels, tiers and workloads of `prelude` ---


def put(x, v):
    x.set(x.get() * np.float32(0.5) + np.float32(v))


def twice(x, v):
    x.set(x.get() * np.float32(0.25) + np.float32(v) + np.float32(v))


part = page = put


def brain(x, v):
    dtype = x.get().dtype
    half_ = (x.get().astype(np.float32) * np.float32(0.5)).astype(dtype)
    v = np.float32(v).astype(dtype).astype(np.float32)
    x.set((half_.astype(np.float32) + v).astype(dtype))


half = brain


def mix(x, y):
    y.set(y.get() * np.float32(0.5) + x.get())


def long(x, v):
    x.set(x.get() * 3 + np.int64(v))


def bump(x, v):
    new = x.get() + np.int32(v)
    x.set(np.where(new > 3, new - 4, new))


sweeping = bump


def flip(x, last):
    x.set(np.int32(last) - x.get())


def total(x, y):
    for row in x.get():
        y.set(y.get() * np.float32(0.5) + row)


def named(rows, x, y):
    for row in rows:
        y.set(y.get() * np.float32(0.5) + x[row])


def pick(size):
    return put if size <= 1 else twice if size <= 3 else put


def low(size):
    return twice if size <= 0 else put


def sub(A, L, c):
    for j in range(len(A)):
        if j + L[0, 1] < c:
            put(V(A, slice(j, j + 1)), c + j)
        elif j == 2:
            bump(V(L, slice(0, 1)), 1)
        else:
            mix(V(A, slice(0, 1)), V(A, slice(j, j + 1)))


def sweep(rows, A, c):
    for g in range(len(rows)):
        for some in tiles(rows[g], 3):
            put(V(A, rows.rows(some)), c + g)


def combine(*_):
    """Workloads are called in the order of the arguments, while Python evaluates them."""


sequential, lo, product = combine, min, itertools.product


# --- programs ---


def meaning(python: str, values: dict[str, object]) -> None:
    """Run the Python that a program means on arrays, which it changes."""
    names = dict(globals())
    exec(compile(python, "<meaning>", "exec"), names)
    given = dict(values)
    kv, routing = given["kv"], given["routing"]
    assert isinstance(kv, Ragged) and isinstance(routing, Sparse)
    given |= {"kv": Axis(kv.offsets), "routing": Axis(routing.offsets, routing.indices)}
    with np.errstate(all="ignore"):
        names["w"](**given)  # pyright: ignore
