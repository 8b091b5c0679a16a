"""Source text of kernels and workloads run as plain Python: what a reader takes it to mean.

Tiles are numpy arrays of their valid parts, views are numpy views, loops over `P` are loops. Instructions
have the numpy meaning of their rows; everything else (names, branches, loops, program order) is Python's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from math import inf

import numpy as np

import pto_wsp
from pto_wsp.isa import BY_FUNCTION, TABLE
from pto_wsp.lang.annotations import TileAnnotation
from pto_wsp.types.dtype import DType, f32

Array = np.ndarray
OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def run(text: str, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> None:
    """Run the workload `w` of a program on arrays, which it changes."""
    names: dict[str, object] = {name: getattr(pto_wsp, name) for name in pto_wsp.__all__}
    names |= {"pto": _Pto(), "P": _Loops(sizes), "kernel": _Kernel, "workload": lambda f: f, "inf": inf}
    exec(compile(text, "<program>", "exec", dont_inherit=True), names)
    workload = names["w"]
    assert callable(workload)
    raggeds = {k: _Rows(v.offsets) for k, v in arguments.items() if isinstance(v, pto_wsp.Ragged)}
    workload(**{**arguments, **raggeds})


class _Tile:
    def __init__(self, data: Array) -> None:
        self.data = data

    @property
    def rows(self) -> int:
        return self.data.shape[0]

    @property
    def cols(self) -> int:
        return self.data.shape[1]

    @property
    def T(self) -> _Tile:
        return _Tile(self.data.T.copy())

    def __neg__(self) -> _Tile:
        return _apply("neg", self)

    def like(self, value: object) -> _Tile:
        """Return an operand as a tile: a number becomes one element of this tile's type."""
        return value if isinstance(value, _Tile) else _filled((1, 1), value, self.data.dtype)


def _operator(op: str, *, is_reversed: bool = False) -> Callable[[_Tile, object], _Tile]:
    def apply(self: _Tile, other: object) -> _Tile:
        operands = (self, self.like(other))
        return _apply(op, *(reversed(operands) if is_reversed else operands))

    return apply


def _comparison(mode: str) -> Callable[[_Tile, object], _Tile]:
    return lambda self, other: _apply("cmp", self, self.like(other), mode=mode)


for _name, _op in OPERATORS.items():
    setattr(_Tile, f"__{_name}__", _operator(_op))
    setattr(_Tile, f"__r{_name}__", _operator(_op, is_reversed=True))
for _mode in COMPARISONS:
    setattr(_Tile, f"__{_mode}__", _comparison(_mode))


class _View(_Tile):
    """A parameter: arithmetic with it loads it, a tile that is only read once and at the start."""

    def __init__(self, memory: Array, *, is_loaded_at_start: bool) -> None:
        self.memory = memory
        self.start = memory.copy() if is_loaded_at_start else None

    @property
    def data(self) -> Array:
        return self.memory.copy() if self.start is None else self.start

    def __getitem__(self, index: slice | int) -> _View | int:
        part = self.memory[index]
        return _View(part, is_loaded_at_start=False) if part.ndim else int(part)


def _filled(shape: tuple[int, int], value: object, dtype: np.dtype) -> _Tile:
    with np.errstate(all="ignore"):
        number = np.asarray(value) if dtype.kind == "i" else np.asarray(value).astype(np.float32)
        return _Tile(np.full(shape, number.astype(dtype)))


def _apply(op: str, *tiles: _Tile, dtype: np.dtype | None = None, **attrs: object) -> _Tile:
    row = TABLE[op]
    assert row.numpy is not None
    result = tiles[-1].data.dtype if dtype is None else dtype
    wide = np.float32 if row.bound.kind == "exact" else np.float64
    operands = [t.data if t.data.dtype.kind in "iub" else t.data.astype(wide) for t in tiles]
    with np.errstate(all="ignore"):
        found = np.asarray(row.numpy(*operands, {"numpy_dtype": result, **attrs}))
        return _Tile(found if op == "cmp" else found.astype(result))


class _Pto:
    """The functions of a kernel."""

    def __getattr__(self, name: str) -> Callable[..., _Tile]:
        op = BY_FUNCTION[name].name

        def call(*operands: object) -> _Tile:
            like = next(t for t in operands if isinstance(t, _Tile))
            return _apply(op, *(like.like(t) for t in operands))

        return call

    def load(self, view: _View) -> _Tile:
        return _Tile(view.memory.copy())

    def store(self, view: _View, tile: _Tile) -> None:
        view.memory[...] = tile.data

    def where(self, mask: _Tile, a: object, b: object) -> _Tile:
        like = a if isinstance(a, _Tile) else b
        assert isinstance(like, _Tile)
        return _Tile(np.where(mask.data, like.like(a).data, like.like(b).data))

    def cast(self, x: _Tile, dtype: DType) -> _Tile:
        return _apply("cvt", x, dtype=dtype.to_numpy())

    def full(self, shape: tuple[int, int], value: object, dtype: DType = f32) -> _Tile:
        return _filled(shape, value, dtype.to_numpy())

    def matmul(self, a: _Tile, b: _Tile, acc: _Tile | None = None) -> _Tile:
        tiles = (a, b) if acc is None else (acc, a, b)
        return _apply("matmul" if acc is None else "matmul_acc", *tiles, dtype=np.dtype(np.float32))

    def matmul_acc(self, acc: _Tile, a: _Tile, b: _Tile) -> _Tile:
        return self.matmul(a, b, acc)

    def tiles(self, extent: int, tile: int) -> list[slice]:
        return _tiles(extent, tile)


class _Kernel:
    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, _: object) -> _Kernel:
        return self

    def __call__(self, /, **values: object) -> None:
        kinds = self.function.__annotations__
        self.function(**{name: self._parameter(value, kinds[name]) for name, value in values.items()})

    def _parameter(self, value: object, kind: object) -> object:
        if not isinstance(value, np.ndarray):
            return value
        is_tile = isinstance(getattr(kind, "inner", None), TileAnnotation)
        return _View(value, is_loaded_at_start=is_tile and getattr(kind, "role", "") == "in")


class _Loops:
    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes

    def extent(self, axis: str | int) -> int:
        return self.sizes[axis] if isinstance(axis, str) else axis

    def __call__(self, *axes: str | int) -> Iterable[object]:
        ranges = [range(self.extent(axis)) for axis in axes]
        return ranges[0] if len(ranges) == 1 else itertools.product(*ranges)

    def range(self, axis: str | int) -> Iterable[object]:
        return self(axis)

    grid, seq = __call__, range

    def tiles(self, axis: str | int, tile: int, order: str = "parallel") -> list[slice]:
        return _tiles(self.extent(axis), tile)


class _Rows:
    def __init__(self, offsets: Array) -> None:
        self.offsets = offsets

    def __getitem__(self, row: int) -> slice:
        return slice(int(self.offsets[row]), int(self.offsets[row + 1]))


def _tiles(extent: int, tile: int) -> list[slice]:
    return [slice(i, min(i + tile, extent)) for i in range(0, extent, tile)]
