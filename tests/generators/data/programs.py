"""Random programs in which data decides, as text twice: a workload, and the plain Python that it means.

Loops run over ragged and sparse axes and over groups that tasks make; conditions, extents, offsets, tiers and
slots read arrays that tasks of the run change; row sets, pages, handles, nested workloads and ALL are in
any order. A few programs are wrong on purpose: rows that are not there, and rows written twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import indent

from tests.generators.data.prelude import PARAMS, UNREAD
from tests.generators.drawing import Draw

IMPORTS = "from tests.generators.data.prelude import *"

Lines = tuple[list[str], list[str]]
"""A block of a workload, and of the Python that it means."""


@dataclass
class Scope:
    """What a block may name: loop variables, groups of one and of two dimensions, handles."""

    variables: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)
    handles: list[str] = field(default_factory=list)

    def inside(self, *variables: str) -> Scope:
        """Return the scope of a block inside."""
        return Scope([*self.variables, *variables], [*self.groups], [*self.pairs], [*self.handles])


class Writer:
    """Writes one random program.

    Args:
        draw: what chooses.
        names: Python variables that it assigns and reads.
    """

    def __init__(self, draw: Draw, names: tuple[str, ...] = ()) -> None:
        self.random = draw
        self.names = names
        self.count = 0
        self.budget = 16

    def program(self) -> tuple[str, str]:
        """Return the source of a workload `w`, and of a Python function `w` with the same parameters."""
        start: Lines = ([], [])
        for slot in range(3):
            start = join(start, line(f"slot_set_i64({slot}, {slot})", f"slots[{slot}] = {slot}"))
        for name in self.names:
            start = join(start, line(f"{name} = s", f"{name} = s"))
        ours, theirs = join(start, self.block(Scope(), 0))
        ours = [re.sub(r"slots\[(\d)\]", r"slot_i64(\1)", text) for text in ours]
        body = ["n, p, lim = X.shape[0], R.shape[0], symbol_i64('lim')", *UNREAD, *ours]
        workload = f"{IMPORTS}\n@workload\ndef w({PARAMS}):\n" + indent("\n".join(body), "    ")
        names = ", ".join(name for name in re.findall(r"(\w+):", PARAMS) if name != "e")
        sizes = "n, p, e = len(X), len(R), len(routing)"
        python = f"slots = [0] * 3\ndef w({names}, lim):\n    {sizes}\n"
        return workload, python + indent("\n".join(theirs), "    ")

    # --- blocks ---

    def block(self, scope: Scope, depth: int) -> Lines:
        lines: Lines = ([], [])
        for _ in range(self.random.randint(1, 4 if depth == 0 else 3)):
            lines = join(lines, self.statement(scope, depth))
        return lines

    def statement(self, scope: Scope, depth: int) -> Lines:
        self.budget -= 1
        choices: list[Callable[[Scope, int], Lines]] = [
            *[self.rows] * 4,
            *[self.change] * 3,
            self.page,
            self.tier,
            self.gather,
            self.slot,
            self.call,
            self.every,
            self.group,
        ]
        if self.names:
            choices += [self.assign] * 3
        if depth < 4 and self.budget > 0:
            choices += [self.loop] * 4 + [self.conditional] * 4
        return self.random.choice(choices)(scope, depth)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def loop(self, scope: Scope, depth: int) -> Lines:
        kind = self.random.choice(["P", "P.range", "P.seq"])
        name = self.fresh("i")
        extent = self.random.choice(['"n"', '"b"', '"e"', "2", f"({self.number(scope)}) % 4", "kv", "sel"])
        inside = self.block(scope.inside(name), depth + 1)
        if extent == "kv":
            ours, theirs = self.ragged_row()
            return nest(f"for {name} in {kind}({ours}):", f"for {name} in range(len({theirs})):", inside)
        if extent == "sel":
            ours, theirs = self.random.choice(
                [("routing", "routing.sel()"), ("routing[0]", "routing.sel(0)")]
            )
            return nest(f"for {name} in P.sel({ours}):", f"for {name} in {theirs}:", inside)
        theirs = {'"n"': "n", '"b"': "len(kv)", '"e"': "e"}.get(extent, extent)
        if self.random.random() < 0.2:
            other = self.fresh("i")
            inside = self.block(scope.inside(name, other), depth + 1)
            ours = f"for {name}, {other} in P({extent}, 2):"
            return nest(ours, f"for {name}, {other} in product(range({theirs}), range(2)):", inside)
        return nest(f"for {name} in {kind}({extent}):", f"for {name} in range({theirs}):", inside)

    def conditional(self, scope: Scope, depth: int) -> Lines:
        words = [("P.when", "if")] + [("P.otherwise", "elif")] * self.random.randint(0, 2)
        lines: Lines = ([], [])
        for ours, theirs in words:
            one, two = self.predicate(scope)
            body = self.block(scope.inside(), depth + 1)
            lines = join(lines, nest(f"with {ours}({one}):", f"{theirs} {two}:", body))
        if self.random.random() < 0.5:
            body = self.block(scope.inside(), depth + 1)
            lines = join(lines, nest("with P.otherwise():", "else:", body))
        return lines

    # --- tasks ---

    def task(self, scope: Scope, ours: str, theirs: str) -> Lines:
        """Return a task, perhaps with a name for its handle and edges from others."""
        if scope.handles and self.random.random() < 0.3:
            some = self.random.sample(scope.handles, min(2, len(scope.handles)))
            ours = f"{ours[:-1]}, after=[{', '.join(some)}])"
        if self.random.random() < 0.2:
            name = self.fresh("h")
            scope.handles.append(name)
            ours = f"{name} = {ours}"
        return line(ours, theirs)

    def rows(self, scope: Scope, depth: int) -> Lines:
        """Return tasks on some rows of a tensor, chosen in one of many ways."""
        forms: list[Callable[[Scope], tuple[str, str, str, str]]] = [
            self.by_tiles,
            self.by_index,
            *[self.by_row_set] * 2,
            self.by_selection,
        ]
        opened, theirs_opened, ours, theirs = self.random.choice(forms)(scope)
        kind = self.random.randrange(10)
        value = self.number(scope)
        if kind == 0 and scope.pairs and "rows(" in ours:
            kind = 4
        match kind:
            case 0 | 1 | 2 | 3:
                name, kernel = self.random.choice(
                    [("X", "put"), ("Y", "put"), ("X", "twice"), ("B", "brain"), ("H", "half"), ("G", "long")]
                )
                task = f"{kernel}({name}[{ours}], {value})", f"{kernel}(V({name}, {theirs}), {value})"
            case 4 | 5 | 6:
                a, b = self.random.choice(["XY", "YX"])
                task = f"mix({a}[{ours}], {b}[{ours}])", f"mix(V({a}, {theirs}), V({b}, {theirs}))"
            case 7:
                start = self.random.randint(0, 5)
                at = f"{start}:{start + 3}"
                task = f"part(X[{ours}, {at}], {value})", f"part(V(X[:, {at}], {theirs}), {value})"
            case 8:
                at = f"({self.number(scope)}) % 3"
                task = f"put(Z[{at}, {ours}], {value})", f"put(V(Z[{at}], {theirs}), {value})"
                if "rows(" in ours:
                    task = f"put(X[{ours}], {value})", f"put(V(X, {theirs}), {value})"
            case _:
                task = f"total(X[{ours}], Y[0:1])", f"total(V(X, {theirs}), V(Y, slice(0, 1)))"
        if scope.pairs and self.random.random() < 0.5:
            group, tile = self.random.choice(scope.pairs), self.random.randint(1, 4)
            name, row = self.fresh("k"), f"({self.number(scope)}) % 4"
            opened = f"for {name} in P.tiles({group}[{row}], {tile}{self.order()}):"
            theirs_opened = f"for {name} in tiles({group}[{row}], {tile}):"
            at = f"{group}.rows({name})"
            task = f"put(Q[{at}], {value})", f"put(V(Q.reshape(-1, 8), {at}), {value})"
        inner = scope if not opened else scope.inside()
        lines = self.task(inner, *task)
        return nest(opened, theirs_opened, lines) if opened else lines

    def order(self) -> str:
        """Return an order for a loop over tiles: all of them mean program order."""
        return self.random.choice(["", "", ', order="range"', ', order="seq"'])

    def by_tiles(self, scope: Scope) -> tuple[str, str, str, str]:
        name, tile = self.fresh("r"), self.random.randint(1, 4)
        return (
            f'for {name} in P.tiles("n", {tile}{self.order()}):',
            f"for {name} in tiles(n, {tile}):",
            name,
            f"slice({name}.start, {name}.stop)",
        )

    def by_index(self, scope: Scope) -> tuple[str, str, str, str]:
        at = f"({self.number(scope)}) % n"
        if self.random.random() < 0.05:
            at = self.number(scope)
        return "", "", f"{at} : {at} + 1", f"slice({at}, {at} + 1)"

    def by_row_set(self, scope: Scope) -> tuple[str, str, str, str]:
        name, tile = self.fresh("k"), self.random.randint(1, 4)
        axis, rows = self.random.choice([("routing", "e"), *((g, "4") for g in scope.groups)])
        of = f"{axis}[({self.number(scope)}) % {rows}]" if self.random.random() < 0.8 else axis
        return (
            f"for {name} in P.tiles({of}, {tile}{self.order()}):",
            f"for {name} in tiles({of}, {tile}):",
            f"{axis}.rows({name})",
            f"{axis}.rows({name})",
        )

    def by_selection(self, scope: Scope) -> tuple[str, str, str, str]:
        name = self.fresh("j")
        axis, rows = self.random.choice([("routing", "e"), *((g, "4") for g in scope.groups)])
        at = f"({self.number(scope)}) % {rows}" if self.random.random() < 0.7 else ""
        return (
            f"for {name} in P.sel({axis}{f'[{at}]' if at else ''}):",
            f"for {name} in {axis}.sel({at}):",
            f"{name} : {name} + 1",
            f"slice({name}, {name} + 1)",
        )

    def clipped(self, row: str, theirs: str) -> tuple[str, str]:
        """Return a slice of a row that is clipped to it."""
        start, stop = sorted(self.random.randint(0, 5) for _ in range(2))
        ours = f"{row}[{row}.extent.min({start}) : {row}.extent.min({stop})]"
        return ours, f"{theirs}[min(len({theirs}), {start}) : min(len({theirs}), {stop})]"

    def ragged_row(self) -> tuple[str, str]:
        return self.random.choice([("kv", "kv.all"), ("kv[0]", "kv[0]")])

    def gather(self, scope: Scope, depth: int) -> Lines:
        """Return a task that reads a whole row of an axis, or tasks on elements of ragged rows."""
        match self.random.randrange(4):
            case 0:
                row = f"routing[({self.number(scope)}) % e]"
                ours, theirs = self.clipped(row, row) if self.random.random() < 0.5 else (row, row)
                ours = f"total(X[routing.rows({ours})], Y[0:1])"
                return self.task(scope, ours, f"total(V(X, routing.rows({theirs})), V(Y, slice(0, 1)))")
            case 1:
                at = f"({self.number(scope)}) % e"
                ours = f"named(routing.rows(routing[{at}]), X, Y[0:1])"
                return self.task(scope, ours, f"named(routing.rows(routing[{at}]), X, V(Y, slice(0, 1)))")
            case 2:
                b, r, tile = self.fresh("b"), self.fresh("r"), self.random.randint(1, 4)
                task = self.task(
                    scope.inside(b),
                    f"put(Tk[kv[{b}][{r}]], {b} + 1)",
                    f"put(V(Tk, slice({r}.start, {r}.stop)), {b} + 1)",
                )
                inner = nest(
                    f"for {r} in P.tiles(kv[{b}], {tile}{self.order()}):",
                    f"for {r} in tiles(kv[{b}], {tile}):",
                    task,
                )
                return nest(f'for {b} in P("b"):', f"for {b} in range(len(kv)):", inner)
            case _:
                b = self.fresh("b")
                at, row = f"({self.number(scope)}) % 3", f"kv[{b}]"
                ours, theirs = self.clipped(row, row) if self.random.random() < 0.5 else (row, row)
                with_length = self.task(
                    scope.inside(b),
                    f"total(Tk[{ours}], Z[{at}, 0:1])",
                    f"total(V(Tk, slice({theirs}.start, {theirs}.stop)), V(Z[{at}], slice(0, 1)))",
                )
                return nest(f'for {b} in P("b"):', f"for {b} in range(len(kv)):", with_length)

    def change(self, scope: Scope, depth: int) -> Lines:
        """Return a task that writes what control reads."""
        row, by = f"({self.number(scope)}) % 3", self.random.randint(0, 3)
        match self.random.randrange(8):
            case 6:
                at = f"({self.number(scope)}) * 97 % 600"
                ours = f"bump(M[{at} : {at} + 1], {by})"
                theirs = f"bump(V(M, slice({at}, {at} + 1)), {by})"
            case 7:
                part = self.random.choice(["0:600", "3:600", "0:160", "150:590", "97:98"])
                ours, theirs = f"sweeping(M[{part}], {by})", f"bump(V(M, np.s_[{part}]), {by})"
            case 0 | 1:
                col = f"({self.number(scope)}) % 4"
                ours = f"bump(C[{row} : {row} + 1, {col} : {col} + 1], {by})"
                theirs = f"bump(V(C, np.s_[{row} : {row} + 1, {col} : {col} + 1]), {by})"
            case 2 if self.random.random() < 0.6:
                opened, theirs_opened, ours, theirs = self.by_row_set(scope)
                keys = self.random.choice(["K", "K2"])
                task = f"bump({keys}[{ours}], {by})", f"bump(V({keys}, {theirs}), {by})"
                return nest(opened, theirs_opened, self.task(scope.inside(), *task))
            case 2:
                ours, theirs = f"bump(C, {by})", f"bump(V(C, slice(0, 3)), {by})"
            case 3:
                ours = f"flip(T[{row} : {row} + 1], p - 1)"
                theirs = f"flip(V(T, slice({row}, {row} + 1)), p - 1)"
            case _:
                name, tile = self.fresh("r"), self.random.randint(1, 4)
                keys = self.random.choice(["K", "K2"])
                body = self.task(
                    scope.inside(name),
                    f"bump({keys}[{name}], {by})",
                    f"bump(V({keys}, slice({name}.start, {name}.stop)), {by})",
                )
                return nest(
                    f'for {name} in P.tiles("n", {tile}{self.order()}):',
                    f"for {name} in tiles(n, {tile}):",
                    body,
                )
        return self.task(scope, ours, theirs)

    def page(self, scope: Scope, depth: int) -> Lines:
        at = f"T[({self.number(scope)}) % 3, ({self.number(scope)}) % 4]"
        value = self.number(scope)
        return self.task(scope, f"page(R[{at}], {value})", f"page(V(R, int({at})), {value})")

    def tier(self, scope: Scope, depth: int) -> Lines:
        size, value = self.number(scope), self.number(scope)
        name = "pick" if self.random.random() < 0.9 else "low"
        size = size if name == "pick" else f"({size}) % 3"
        opened, theirs_opened, ours, theirs = self.by_row_set(scope)
        if self.random.random() < 0.5:
            opened, theirs_opened, ours, theirs = self.by_index(scope)
        inner = scope if not opened else scope.inside()
        lines = self.task(
            inner, f"{name}.at({size})[1](X[{ours}], {value})", f"{name}({size})(V(X, {theirs}), {value})"
        )
        return nest(opened, theirs_opened, lines) if opened else lines

    def slot(self, scope: Scope, depth: int) -> Lines:
        slot = self.random.randrange(3)
        match self.random.randrange(3):
            case 0:
                row, col = f"({self.number(scope)}) % 3", f"({self.number(scope)}) % 4"
                return line(
                    f"slot_load_u64({slot}, C, {row}, {col})", f"slots[{slot}] = int(C[{row}, {col}])"
                )
            case 1:
                at = f"({self.number(scope)}) % 4"
                return line(f"slot_load_i64({slot}, E, {at})", f"slots[{slot}] = int(E[{at}])")
            case _:
                value = f"({self.number(scope)}) % 5"
                return line(f"slot_set_i64({slot}, {value})", f"slots[{slot}] = int({value})")

    def assign(self, scope: Scope, depth: int) -> Lines:
        """Return a Python variable that gets a value which no task changes."""
        name = self.random.choice(self.names)
        forms = ["s", f"D[{self.random.randrange(3)}, 0]", *scope.variables, *self.names]
        text = f"{name} = ({self.random.choice(forms)} + {self.random.randint(0, 2)}) % 5"
        return line(text, text)

    def call(self, scope: Scope, depth: int) -> Lines:
        """Return calls of other workloads, one after the other."""
        calls = []
        for _ in range(self.random.randint(1, 3)):
            name, value = self.random.choice("XY"), self.number(scope)
            axis = self.random.choice(["routing", *scope.groups])
            ours = self.random.choice([f"sub({name}, C, {value})", f"sweep({axis}, {name}, {value})"])
            calls.append(ours)
        if len(calls) == 1:
            return line(calls[0], calls[0])
        # The arguments of `combine` are evaluated one after another, as the workloads are.
        text = f"{self.random.choice(['combine', 'sequential'])}({', '.join(calls)})"
        return line(text, text)

    def every(self, scope: Scope, depth: int) -> Lines:
        at, value = f"({self.number(scope)}) % n", self.number(scope)
        ours = f"put[ALL](Z[ALL, {at} : {at} + 1], {value})"
        return line(ours, f"for q in range(3): put(V(Z[q], slice({at}, {at} + 1)), {value})")

    def group(self, scope: Scope, depth: int) -> Lines:
        name = self.fresh("g")
        if self.random.random() < 0.5:
            scope.pairs.append(name)
            return line(f"{name} = group_by(K2, num_groups=4)", f"{name} = group_by(K2, 4)")
        scope.groups.append(name)
        return line(f"{name} = group_by(K[:, 0], num_groups=4)", f"{name} = group_by(K[:, 0], 4)")

    # --- numbers ---

    def number(self, scope: Scope) -> str:
        """Return an expression for a small number >= 0 that is the same in both languages."""
        one, two = self.simple(scope), self.simple(scope)
        forms = [one] * 4 + [f"({one} + {two}) % 5", f"({one} * 2 + 1) // 2", f"lo({one}, {two})"]
        forms += [f"({one} ^ {two})", f"(7 - {one}) % 4", f"({one} << 1)"]
        return self.random.choice(forms)

    def simple(self, scope: Scope) -> str:
        last = f"{(scope.variables or ['1'])[-1]}"
        forms = [
            "1",
            "3",
            "s",
            "lim",
            "n",
            *self.names * 3,
            *scope.variables * 2,
            f"slots[{self.random.randrange(3)}]",
        ]
        forms += [f"C[{self.random.randrange(3)}, {self.random.randrange(4)}]", f"C[({last}) % 3, 1]"] * 2
        forms += [f"D[({last}) % 3, 2]", f"E[({last}) % 4]", f"C[C[0, 1] % 3, D[1, ({last}) % 4]]"]
        forms += [
            f"K2[({last}) % n, 1]",
            f"K[({last}) % n, 0]",
            "kv.extent",
            "routing.extent",
            f"T[({last}) % 3, 0]",
        ]
        forms += [f"{group}[1].extent" for group in (*scope.groups, *scope.pairs)]
        return self.random.choice(forms)

    def predicate(self, scope: Scope) -> tuple[str, str]:
        one, two = self.simple(scope), self.number(scope)
        while one.isdigit():
            one = self.simple(scope)
        sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        simple = f"({one} {sign} {two})"
        if self.random.random() < 0.25:
            return f"~{simple}", f"(not {simple})"
        if self.random.random() < 0.3:
            other, theirs = self.predicate(scope)
            sign = self.random.choice("&|")
            return f"({simple} {sign} {other})", f"({simple} {'and' if sign == '&' else 'or'} {theirs})"
        return simple, simple


def line(ours: str, theirs: str) -> Lines:
    return [ours], [theirs]


def join(a: Lines, b: Lines) -> Lines:
    return a[0] + b[0], a[1] + b[1]


def nest(ours: str, theirs: str, body: Lines) -> Lines:
    return [ours, *("    " + text for text in body[0])], [theirs, *("    " + text for text in body[1])]
