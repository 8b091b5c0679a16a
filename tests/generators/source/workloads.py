"""Source text of random workloads around random kernels, and arrays for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from pto_wsp import Ragged
from tests.generators.drawing import Draw
from tests.generators.source.kernels import KernelText

NUMPY = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i32": np.int32}
SPECIAL = (0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -2.5, 6e4, 3e38, 1e-40)
EDGE = 45
"""Extent of dimensions that constant slices index: more than any of them reaches."""

Dims = tuple[int | str, ...]


@dataclass
class WorkloadText:
    """A workload called `w`: its text, its tensors (element type, sizes) and the values of its sizes."""

    sizes: dict[str, int]
    tensors: dict[str, tuple[str, Dims]] = field(default_factory=dict)
    text: str = ""
    is_ragged: bool = False


def random_workload(draw: Draw, kernels: list[KernelText]) -> WorkloadText:
    """Return a workload that names every kernel, so that all workloads of a pool share one library."""
    return _Writer(draw, kernels).write()


def random_arguments(workload: WorkloadText, seed: int) -> dict[str, object]:
    """Return arguments for a call, the same for the same seed: some arrays strided, some of them one."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    found: dict[str, object] = {}
    seen: dict[object, np.ndarray] = {}
    for name, (dtype, dims) in workload.tensors.items():
        shape = tuple(workload.sizes[d] if isinstance(d, str) else d for d in dims)
        array = (
            numbers.integers(0, 4, shape, np.int32) if len(dims) == 1 else _array(draw, numbers, dtype, shape)
        )
        if len(dims) > 1 and (dtype, shape) in seen and draw.random() < 0.3:
            array = seen[dtype, shape]
        seen[dtype, shape] = array
        found[name] = array
    if workload.is_ragged:
        lengths = numbers.integers(0, 3, workload.sizes["b"])
        found["kv"] = Ragged.lengths(lengths)
    return {**found, **{n: workload.sizes[n] for n in ("g", "h", "b")}, "s": draw.choice([0.5, -1.25, 2.0])}


def _array(draw: Draw, numbers: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    margin = draw.choice([0, 0, 1, 3])
    whole = (*shape[:-2], *(n + margin for n in shape[-2:]))
    if dtype == "i32":
        array = numbers.integers(-9, 9, whole).astype(np.int32)
        array[numbers.random(whole) < 0.02] = 2**31 - 1
    else:
        values = numbers.standard_normal(whole) * 3
        values = np.where(numbers.random(whole) < 0.01, numbers.choice(SPECIAL, whole), values)
        with np.errstate(all="ignore"):
            array = values.astype(NUMPY[dtype])
    return array[(..., *(slice(margin, None),) * 2)]


class _Writer:
    def __init__(self, draw: Draw, kernels: list[KernelText]) -> None:
        self.draw = draw
        self.kernels = kernels
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.indices: list[tuple[str, str]] = []
        sizes = {
            "n": [0, 1, 2, 7, 16, 20, 33, 40],
            "m": [1, 3, 17, 30],
            "g": [0, 1, 2, 3],
            "h": [1, 2, 4],
            "b": [0, 1, 3, 6],
        }
        values = {name: draw.choice(found) for name, found in sizes.items()}
        self.made = WorkloadText({**values, "t": 12, "u": 3})

    def write(self) -> WorkloadText:
        self.line("for never in P(0):")
        self.indent += 1
        for kernel in self.kernels:
            self.call(kernel)
        self.indent -= 1
        for _ in range(self.draw.randint(1, 4)):
            self.statement(0)
        params = [
            f"{n}: Tensor[{d}, {', '.join(map(repr, dims))}]" for n, (d, dims) in self.made.tensors.items()
        ]
        params += [f"{name}: DenseDyn" for name in ("g", "h", "b")]
        params += ['kv: Ragged["b"]'] if self.made.is_ragged else []
        signature = ", ".join([*params, "s: Scalar[f32]"])
        self.made.text = f"@workload\ndef w({signature}):\n" + "\n".join(self.lines) + "\n"
        return self.made

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def statement(self, depth: int) -> None:
        if depth == 2 or self.draw.random() < 0.4:
            self.call(self.draw.choice(self.kernels))
            return
        loop = self.draw.choice(["P", "P.range", "P.seq", "P.grid"])
        opened = [(self.fresh("i"), self.draw.choice("ghb")) for _ in range(2 if loop == "P.grid" else 1)]
        names, axes = (", ".join(part) for part in zip(*((n, f'"{a}"') for n, a in opened), strict=True))
        self.line(f"for {names} in {loop}({axes}):")
        self.indices += opened
        self.indent += 1
        for _ in range(self.draw.randint(1, 2)):
            self.statement(depth + 1)
        self.indent -= 1
        del self.indices[-len(opened) :]

    def tensor(self, dtype: str, dims: Dims) -> str:
        known = [name for name, found in self.made.tensors.items() if found == (dtype, dims)]
        if known and (self.draw.random() < 0.7 or len(self.made.tensors) > 8):
            return self.draw.choice(known)
        name = f"T{len(self.made.tensors)}"
        self.made.tensors[name] = (dtype, dims)
        return name

    def call(self, kernel: KernelText) -> None:
        outside = self.indent
        rows, cols = (
            size if self.draw.random() < 0.7 else self.draw.randint(1, size) for size in kernel.shape
        )
        coordinates = [name for name, _ in self.indices]
        if self.draw.random() < 0.3:
            dims: Dims = (EDGE, EDGE)
            regions = [(self.moving(rows), self.constant(cols)) for _ in kernel.tiles]
        else:
            dims, region = self.tiles(kernel, rows, cols)
            regions = [region] * len(kernel.tiles)
            coordinates += [part for part in region if part != ":"]
        arguments = self.arguments(kernel, dims, regions, cols)
        at = f"[{', '.join(coordinates)}]" if coordinates else ""
        self.line(f"{kernel.name}{at}({', '.join(arguments)})")
        self.indent = outside

    def tiles(self, kernel: KernelText, rows: int, cols: int) -> tuple[Dims, tuple[str, str]]:
        """Open loops over tiles of rows, and perhaps of columns; return sizes and region of tensors."""
        loops = [(self.fresh("r"), "n", rows)]
        dims: Dims = ("n", kernel.shape[1])
        if self.draw.random() < 0.6:
            loops.append((self.fresh("c"), "m", cols))
            dims = ("n", "m")
        region = (loops[0][0], loops[1][0] if len(loops) > 1 else ":")
        self.draw.shuffle(loops)
        for name, axis, tile in loops:
            order = self.draw.choice(["", ', order="range"', ', order="seq"'])
            self.line(f'for {name} in P.tiles("{axis}", {tile}{order}):')
            self.indent += 1
        return dims, region

    def moving(self, extent: int) -> str:
        start = str(self.draw.randint(0, 3))
        if self.indices and self.draw.random() < 0.6:
            start = f"{self.draw.choice(self.indices)[0]} * {self.draw.randint(0, 1)} + {start}"
        return f"{start} : {start} + {extent}"

    def constant(self, extent: int) -> str:
        start = self.draw.randint(0, 3)
        return f"{start} : {start + extent}"

    def arguments(
        self, kernel: KernelText, dims: Dims, regions: list[tuple[str, str]], cols: int
    ) -> list[str]:
        found = []
        for (name, (_, (_, dtype))), (row, col) in zip(kernel.tiles.items(), regions, strict=True):
            if name == "v":
                found.append(f"v={self.tensor(dtype, (2, *dims[1:]))}[1:2, {col}]")
            elif name == "q":
                found.append(f"q={self.tensor(dtype, (dims[0], 5))}[{row}, 1:2]")
            elif self.indices and self.draw.random() < 0.3:
                index, axis = self.draw.choice(self.indices)
                found.append(f"{name}={self.tensor(dtype, (axis, *dims))}[{index}, {row}, {col}]")
            else:
                found.append(f"{name}={self.tensor(dtype, dims)}[{row}, {col}]")
        if kernel.has_rows:
            rows = [f"kv[{name}]" for name, axis in self.indices if axis == "b"]
            part = self.draw.choice([*rows, ":", f"{self.draw.randint(0, 2)} : {self.draw.randint(2, 9)}"])
            self.made.is_ragged |= part.startswith("kv")
            found.append(f"k={self.tensor(kernel.dtype, ('t', kernel.shape[1]))}[{part}]")
        if kernel.has_ids:
            found.append(f"ids={self.tensor('i32', ('u',))}")
        n = self.draw.choice([*(name for name, _ in self.indices), str(self.draw.randint(0, 4))])
        return [*found, "s=s", f"n={n}"]
