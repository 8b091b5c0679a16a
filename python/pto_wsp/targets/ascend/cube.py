"""One kernel of a cube core as PTO tile calls: products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.steps import Step
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Store, walk_statements
from pto_wsp.targets.ascend.core import CoreCode, StraightLoop, sum_name
from pto_wsp.targets.ascend.cube_memory import LEFT, TURNED, Operand, assign_cube_memory, operands_of
from pto_wsp.targets.ascend.generation import L0_BYTES, Generation
from pto_wsp.targets.ascend.hazards import CUBE, FIX, LOAD, MOVE, Touched
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.c_style.plan import Node
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name
from pto_wsp.types.dtype import bf16, f16, f32, i8, i32

SUMS = {f16: f32, bf16: f32, f32: f32, i8: i32}
"""Types of operands, and of the sums of their products."""

_HALF = L0_BYTES // 2


class CubeCode(CoreCode):
    """The calls of one kernel of a cube core while they are written.

    Operands lie in L1 as parts of `depth` terms each. A product moves a part of both operands to one half of
    L0A and of L0B, while the other halves are multiplied. Sums stay in L0C until a store.

    Args:
        kernel: a phase of `split_cores`.
        generation: what it is written for.
        draft: the kernel as it was written before, which knows the flags and the variables; or None.
    """

    def __init__(self, kernel: KernelFunction, generation: Generation, draft: CubeCode | None = None) -> None:
        super().__init__(kernel, generation, draft)
        for stmt in walk_statements(kernel.body or ()):
            if isinstance(stmt, Instr):
                self._require_product(stmt)
        self.memory = assign_cube_memory(kernel, generation)
        self._half = 0
        self._has_turns = False

    def begin(self) -> None:
        """Write the variables of tiles, and of sums."""
        super().begin()
        for name in self.memory.sums:
            self.out.line(f"bool {sum_name(name)} = true;")

    def _require_product(self, instr: Instr) -> None:
        """Refuse operands that cube cores do not multiply."""
        if instr.attr("trans_a"):
            advice = "store the operand transposed, or swap the operands and transpose the result"
            raise self.refused(f"`{instr.op}` with a transposed left operand", advice, instr.loc)
        factors = [self.types[operand.tile].dtype for operand in operands_of(instr)]
        if factors and (len({*factors}) > 1 or SUMS.get(factors[0]) is not self.types[instr.dst].dtype):
            what = f"`{instr.op}` of {factors[0]} and {factors[1]} as {self.types[instr.dst].dtype}"
            raise self.refused(what, "cast both operands to f32, or to one type of half the size", instr.loc)

    # --- moves ------------------------------------------------------------------------------------------

    def load(self, stmt: Load, window: str) -> None:
        """Write loads of a window to L1, once per place in which products read the tile."""
        self.require_rows(stmt)
        self.require_column(stmt, window)
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
        tile = tile_name(stmt.tile)
        for operand in self.memory.places:
            if operand.tile != stmt.tile:
                continue
            terms = f"{tile}.{FIELDS[operand.terms_dim]}"
            for part in range(self.memory.parts_of(operand, self.types)):
                place, first = self._in_l1(operand, part), part * self.memory.depth
                address = self.address(place.start, place.shift)
                call = f"load_{operand.role}({self._part(operand, part)}, {address}, {window}, {first})"
                guard = f"{tile}.has_elements() && {terms} > {first}"
                self.issue(LOAD, call, guard, self.in_tensor(stmt.region), (place,))

    def store(self, stmt: Store, window: str) -> None:
        """Write a store of a sum to a window of its valid shape."""
        self.require_rows(stmt)
        self.require_column(stmt, window)
        self.require_terms(stmt.tile, stmt.loc)
        if stmt.tile in self.memory.tight:
            self.require_no_list(stmt, window)
        call = f"store_sum({self._sum(stmt.tile)}, {self.memory.sums[stmt.tile][0]:#x}, {window})"
        guard, tensor = f"{tile_name(stmt.tile)}.has_elements()", self.in_tensor(stmt.region)
        self.issue(FIX, call, guard, (self._in_l0c(stmt.tile),), tensor)

    # --- instructions -----------------------------------------------------------------------------------

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write a product, or that a sum begins without terms."""
        self.result(step, instr)
        if instr.op != "matmul_acc":
            self.no_terms(instr.dst)
        if instr.op != "expands":
            self._product(instr)

    def _product(self, instr: Instr) -> None:
        """Write the products of the parts of two operands, added to a sum."""
        left, right = operands_of(instr)
        result, terms = tile_name(instr.dst), f"{tile_name(left.tile)}.cols"
        for part in range(self.memory.parts_of(left, self.types)):
            guard = f"{result}.has_elements() && {terms} > {part * self.memory.depth}"
            halves = tuple(Touched(m, self._half, self._half + _HALF, self._turn) for m in ("l0a", "l0b"))
            names = [self._l0(operand) for operand in (left, right)]
            for operand, name, half in zip((left, right), names, halves, strict=True):
                call = f"move_operand({name}, {self._part(operand, part)})"
                self.issue(MOVE, call, guard, (self._in_l1(operand, part),), (half,))
            call = f"multiply({self._sum(instr.dst)}, {names[0]}, {names[1]}, {sum_name(instr.dst)})"
            self.issue(CUBE, call, guard, halves, (self._in_l0c(instr.dst),))
            self._half ^= _HALF

    # --- memory -----------------------------------------------------------------------------------------

    @property
    def _turn(self) -> int:
        """How far the current half is shifted in every second iteration of the loop."""
        return (_HALF - 2 * self._half) * self._has_turns

    def iteration_of(self, loop: StraightLoop, nodes: Sequence[Node]) -> None:
        """Write the body of a straight loop. After an odd number of parts, iterations swap the halves."""
        products = (stmt for stmt in loop.stmt.body if isinstance(stmt, Instr))
        lefts = [operands[0] for stmt in products if (operands := operands_of(stmt))]
        self._has_turns = sum(self.memory.parts_of(left, self.types) for left in lefts) % 2 == 1
        self._half = 0
        super().iteration_of(loop, nodes)
        self._has_turns, self._half = False, 0

    def _part(self, operand: Operand, part: int) -> str:
        """Return the variable of a part of an operand in L1."""
        rows, cols = self.memory.part_shape(operand, self.types)
        variable = f"{operand.role}{part}_{tile_name(operand.tile)}"
        kind = "Turned" if operand.role == TURNED else "Straight"
        place, storage = self._in_l1(operand, part), STORAGE[self.types[operand.tile].dtype.name]
        line = f"{kind}<{storage}, {rows}, {cols}> {variable}({rows}, {cols});"
        self.declare(variable, line, place.start, place.shift)
        return variable

    def _in_l1(self, operand: Operand, part: int) -> Touched:
        size = self.memory.part_bytes(operand, self.types)
        start = self.memory.places[operand] + part * size
        return Touched("l1", start, start + size, self.memory.shifts.get(operand, 0))

    def _l0(self, operand: Operand) -> str:
        """Return the variable of an operand in the half of L0A or L0B that is written next."""
        rows, cols = self.memory.part_shape(operand, self.types)
        side, dtype = ("A", "B")[operand.role != LEFT], self.types[operand.tile].dtype
        # Variables of a loop that swaps the halves are its own: others stay in their half.
        number = f"{len(self.loops)}_" * self._has_turns + str(self._half // _HALF)
        variable = f"l0{side.lower()}{number}_{dtype}_{rows}_{cols}"
        kind = f"{'Left' if side == 'A' else 'Right'}<{STORAGE[dtype.name]}, {rows}, {cols}>"
        self.declare(variable, f"{kind} {variable}({rows}, {cols});", self._half, self._turn)
        return variable

    def _sum(self, name: str) -> str:
        """Return the variable of a sum in L0C."""
        address, rows, cols = self.memory.sums[name]
        variable = f"c_{tile_name(name)}"
        kind = f"Sum<{STORAGE[self.types[name].dtype.name]}, {rows}, {cols}>"
        self.declare(variable, f"{kind} {variable}({rows}, {cols});", address)
        return variable

    def _in_l0c(self, name: str) -> Touched:
        address, rows, cols = self.memory.sums[name]
        return Touched("l0c", address, address + rows * cols * 4)
