"""Random programs whose data decides, as text twice: a workload, and the plain Python that it means."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from textwrap import indent

import numpy as np

from tests.python.lang.programs import execute

ROWS = 5
"""Rows of the tensors X (f32) and L (i32, values 0 to 4) that the programs work on, [ROWS, 1, 1]."""

KERNELS = """
@kernel
def put(x: InOut[Tile[1, 1, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)

@kernel
def bump(l: InOut[Tile[1, 1, i32]], v: Scalar[i64]):
    pto.store(l, pto.where(l + v > 4, l + v - 5, l + v))

@kernel
def mix(x: In[Tile[1, 1, f32]], y: InOut[Tile[1, 1, f32]]):
    pto.store(y, y * 0.5 + x)

@kernel
def twice(x: InOut[Tile[1, 1, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.25 + v + v)

pick = tier("pick", (put, 1), (twice, 3), (put, None))

@workload
def part(Z: Tensor[f32, "k", 1, 1], c: Scalar[i64]):
    for j in P("k"):
        with P.when(j < c):
            put(Z[j], c + j)
        with P.otherwise():
            mix(Z[0], Z[j])

@workload
def change(Z: Tensor[f32, "k", 1, 1], N: Tensor[i32, "k", 1, 1], c):
    for j in P.range(N.shape[0]):
        bump(N[j], 3)
        put(Z[j], c)
"""

REFERENCE = """
def put(x, v):
    x[...] = x * np.float32(0.5) + np.float32(v)

def bump(l, v):
    l[...] = np.where(l + v > 4, l + v - 5, l + v)

def mix(x, y):
    y[...] = y * np.float32(0.5) + x

def twice(x, v):
    x[...] = x * np.float32(0.25) + np.float32(v) + np.float32(v)

def pick(size):
    return put if size <= 1 else twice if size <= 3 else put

def part(Z, c):
    for j in range(len(Z)):
        put(Z[j], c + j) if j < c else mix(Z[0], Z[j])

def change(Z, N, c):
    c = int(c)
    for j in range(len(N)):
        bump(N[j], 3)
        put(Z[j], c)

def sequential(*_):
    pass

combine = sequential
"""

Lines = tuple[list[str], list[str]]
"""A block of a workload, and of the Python that it means."""


class Writer:
    """Writes one random program.

    Args:
        seed: which one.
        writes: whether tasks write the tensor L that control reads.
        slots: whether slots are used.
    """

    def __init__(self, seed: int, *, writes: bool = False, slots: bool = False) -> None:
        self.random = random.Random(seed)
        self.writes = writes
        self.slots = slots
        self.names = iter(f"i{n}" for n in range(1000))
        self.budget = 14

    def program(self) -> tuple[str, str]:
        """Return the source of a workload `w(n, X, L)` and of a Python function `w(n, X, L)`."""
        start: Lines = ([], [])
        if self.slots:
            for slot in range(3):
                add(start, f"slot_set_i64({slot}, {slot})", f"slots[{slot}] = {slot}")
        ours, theirs = join(start, self.block([], 0))
        tensors = 'X: Tensor[f32, "n", 1, 1], L: Tensor[i32, "n", 1, 1]'
        workload = f"{KERNELS}\n@workload\ndef w({tensors}):\n    n = X.shape[0]\n"
        python = f"{REFERENCE}\nslots = [0] * 3\ndef w(n, X, L):\n"
        ours = [re.sub(r"slots\[(\d)\]", r"slot_i64(\1)", line) for line in ours]
        return workload + indent("\n".join(ours), "    "), python + indent("\n".join(theirs), "    ")

    def block(self, variables: list[str], depth: int) -> Lines:
        lines: Lines = ([], [])
        for _ in range(self.random.randint(1, 3)):
            lines = join(lines, self.statement(variables, depth))
        return lines

    def statement(self, variables: list[str], depth: int) -> Lines:
        self.budget -= 1
        choices: list[Callable[[list[str], int], Lines]] = [self.task, self.task, self.tier, self.call]
        if depth < 4 and self.budget > 0:
            choices += [self.loop, self.conditional, self.conditional]
        if self.slots:
            choices += [self.slot]
        return self.random.choice(choices)(variables, depth)

    def loop(self, variables: list[str], depth: int) -> Lines:
        name = next(self.names)
        extent = self.random.choice(["n", "2", "3", f"({self.number(variables)}) % 4"])
        kind = self.random.choice(["P", "P.range", "P.seq"])
        return nest(
            f"for {name} in {kind}({extent}):",
            f"for {name} in range({extent}):",
            self.block([*variables, name], depth + 1),
        )

    def conditional(self, variables: list[str], depth: int) -> Lines:
        ours, theirs = self.predicate(variables)
        lines = nest(f"with P.when({ours}):", f"if {theirs}:", self.block(variables, depth + 1))
        for _ in range(self.random.randint(0, 2)):
            ours, theirs = self.predicate(variables)
            body = self.block(variables, depth + 1)
            lines = join(lines, nest(f"with P.otherwise({ours}):", f"elif {theirs}:", body))
        if self.random.random() < 0.5:
            lines = join(lines, nest("with P.otherwise():", "else:", self.block(variables, depth + 1)))
        return lines

    def task(self, variables: list[str], depth: int) -> Lines:
        row, value = self.row(variables), self.number(variables)
        if self.writes and self.random.random() < 0.4:
            text = f"bump(L[{row}], {self.random.randint(0, 4)})"
        elif self.random.random() < 0.3:
            text = f"mix(X[{row}], X[({row} + 1) % {ROWS}])"
        else:
            text = f"put(X[{row}], {value})"
        return [text], [text]

    def tier(self, variables: list[str], depth: int) -> Lines:
        size, row = self.number(variables), self.row(variables)
        value = self.number(variables)
        return [f"pick.at({size})[1](X[{row}], {value})"], [f"pick({size})(X[{row}], {value})"]

    def call(self, variables: list[str], depth: int) -> Lines:
        parts = [self.called(variables) for _ in range(self.random.randint(1, 3))]
        kind = self.random.choice(["combine", "sequential"])
        if len(parts) > 1:
            text = f"{kind}({', '.join(parts)})"
            return [text], [text]
        every = f"put[ALL](X[ALL], {self.number(variables)})"
        return ([every], [every.replace("[ALL](X[ALL]", "(X")]) if kind == "combine" else (parts, parts)

    def called(self, variables: list[str]) -> str:
        which = self.random.choice(["[0:3]", "[1:5]", "[2:3]", ""])
        if self.writes and self.random.random() < 0.5:
            return f"change(X{which}, L{which}, {self.number(variables)})"
        return f"part(X{which}, {self.number(variables)})"

    def slot(self, variables: list[str], depth: int) -> Lines:
        slot, row = self.random.randrange(3), self.row(variables)
        if self.random.random() < 0.5:
            return [f"slot_load_i64({slot}, L[{row}])"], [f"slots[{slot}] = int(L[{row}, 0, 0])"]
        value = self.number(variables)
        return [f"slot_set_i64({slot}, ({value}) % 5)"], [f"slots[{slot}] = int(({value}) % 5)"]

    def row(self, variables: list[str]) -> str:
        return f"({self.number(variables)}) % {ROWS}"

    def number(self, variables: list[str]) -> str:
        """Return an expression in 0 to 8 that is the same in both languages."""
        forms = [
            "1",
            "3",
            *variables,
            *variables,
            "L[2, 0, 0]",
            f"L[({(variables or ['1'])[-1]}) % {ROWS}, 0, 0]",
        ]
        if self.slots:
            forms.append(f"slots[{self.random.randrange(3)}]")
        one, two = self.random.choice(forms), self.random.choice(forms)
        return self.random.choice([one, one, f"({one} + {two}) % 5", f"({one} * 2 + 1) // 2"])

    def predicate(self, variables: list[str]) -> tuple[str, str]:
        a, b = f"n - {self.random.randint(0, 4)}", self.number(variables)
        if variables or self.random.random() < 0.5:
            a = self.random.choice([*variables, "L[1, 0, 0]"])
        sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        simple = f"({a}) {sign} ({b})", f"({a}) {sign} ({b})"
        match self.random.randrange(5):
            case 0:
                return f"~({simple[0]})", f"not ({simple[1]})"
            case 1 | 2:
                other = self.random.choice(["1 < 2", "2 < 1", f"({a}) < 3"])
                op = self.random.choice([("&", "and"), ("|", "or")])
                return f"({simple[0]}) {op[0]} ({other})", f"({simple[1]}) {op[1]} ({other})"
            case _:
                return simple


def add(lines: Lines, ours: str, theirs: str) -> None:
    lines[0].append(ours)
    lines[1].append(theirs)


def join(a: Lines, b: Lines) -> Lines:
    return a[0] + b[0], a[1] + b[1]


def nest(ours: str, theirs: str, body: Lines) -> Lines:
    return [ours, *("    " + line for line in body[0])], [theirs, *("    " + line for line in body[1])]


def arrays(seed: int) -> dict[str, np.ndarray]:
    """Return random values for X and L."""
    generator = np.random.default_rng(seed)
    return {
        "X": generator.integers(0, 8, (ROWS, 1, 1)).astype(np.float32),
        "L": generator.integers(0, 5, (ROWS, 1, 1)).astype(np.int32),
    }


def require_same(workload: str, python: str, target: str, seeds: int = 3) -> None:
    """Check that a workload, compiled once, does what the Python does, on several data."""
    program = execute(workload)["w"].compile(target)  # pyright: ignore
    names: dict[str, object] = {"np": np}
    exec(python, names)
    for seed in range(seeds):
        expected, found = arrays(seed), arrays(seed)
        names["w"](ROWS, **expected)  # pyright: ignore
        program(**found)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], name + "\n" + workload + "\n" + python)
