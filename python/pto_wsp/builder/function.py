"""`PTOFunctionBuilder`: a function written as a chain of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pto_wsp.builder.blocks import nest
from pto_wsp.builder.callees import Function, Recorded, wrong_kind
from pto_wsp.builder.early_exit import without_leaving
from pto_wsp.builder.in_core import make_kernel
from pto_wsp.builder.instruction_methods import InstructionMethods
from pto_wsp.builder.module import PTOModule
from pto_wsp.builder.names import CompareMode, ElementType, MemorySpace, dtype_of, require_name, scalar_dtype
from pto_wsp.builder.network_methods import NetworkMethods
from pto_wsp.builder.orchestration import make_workload
from pto_wsp.builder.steps import (
    Argument,
    CallStep,
    CheckStep,
    Declaration,
    ElseStep,
    EndStep,
    IfStep,
    ImportStep,
    LeaveStep,
    LoopStep,
    Memref,
    Operand,
    PrintStep,
    ReturnStep,
    ScalarDeclaration,
    ScalarStep,
    Step,
    TileDeclaration,
    TileStep,
    Transfer,
    WhileStep,
)
from pto_wsp.errors import (
    BadBlock,
    BadOperand,
    NameClash,
    NotYetSupported,
    UnknownInstruction,
    UnknownKernel,
    UnknownName,
    closest,
    did_you_mean,
)
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.isa.meaning import COMPARE_MODES
from pto_wsp.isa.refused import REFUSED
from pto_wsp.lang.workload.expansion import is_positive, read_expansion
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType
from pto_wsp.types.space import LOCAL_SPACES, TILE_SPACES
from pto_wsp.types.tile import TileType


class PTOFunctionBuilder(InstructionMethods, NetworkMethods):
    """Builds a function step by step; every method returns the builder, `build` the function.

    An `in_core()` function (the default) computes on tiles, a `not_in_core()` function is an Orchestration
    that calls others. In addition to the methods below there is one for each instruction on tiles, with the
    name of its row in the table: `add(dst, a, b)`, `rowsum(dst, x)`, `cmp(dst, a, b, mode)`.

    Args:
        name: of the function.
        module: takes the function, and has those that it can call.
    """

    def __init__(self, name: str = "main", module: PTOModule | None = None) -> None:
        self.name = name
        self.module = module
        self._loc: Location | None = None
        self._start = self._here("PTOFunctionBuilder")
        self._is_in_core = True
        self._unit = ("any", self._start)
        self._declared: dict[str, Declaration] = {}
        self._steps: list[Step] = []
        require_name("PTOFunctionBuilder", name, self._start)
        if module is not None and not hasattr(module, "get_all_functions"):
            expected, found = "a `PTOModule` as the module", f"`{module!r}`"
            raise BadOperand(op="PTOFunctionBuilder", expected=expected, found=found, loc=self._start)

    def __repr__(self) -> str:
        kind = "in_core" if self._is_in_core else "not_in_core"
        return f"<builder of {self.name}, {kind}, {len(self._steps)} steps: `.build()` makes the function>"

    def at(self, loc: Location) -> PTOFunctionBuilder:
        """Say where the steps that follow are written, for what reads programs from elsewhere."""
        self._loc = loc
        return self

    def _here(self, method: str) -> Location:
        """Return the place of the call of a method: of the last one of its name on the line, in a chain."""
        if self._loc is not None:
            return self._loc
        loc = caller_location() or Location("<unknown>", 0)
        line = loc.source_line() if loc.col else None
        start = -1 if line is None else line.rfind(f".{method}(", loc.col - 1, loc.end_col)
        return loc if start < 0 else replace(loc, col=start + 2)

    def _step(self, step: Step) -> PTOFunctionBuilder:
        self._steps.append(step)
        return self

    def _declare(self, method: str, name: str, declaration: Declaration) -> PTOFunctionBuilder:
        require_name(method, name, declaration.loc)
        if name in self._declared:
            notes = [("the first one", self._declared[name].loc)]
            raise NameClash(kind="things in a function", name=name, loc=declaration.loc, notes=notes)
        self._declared[name] = declaration
        return self

    # --- kind and declarations ---

    def in_core(self) -> PTOFunctionBuilder:
        """Make it a function on tiles."""
        self._is_in_core = True
        return self

    def not_in_core(self) -> PTOFunctionBuilder:
        """Make it an Orchestration: control flow and calls."""
        self._is_in_core = False
        return self

    def cube(self, is_cube: bool = True) -> PTOFunctionBuilder:
        """Say which cores the function wants: those for matrices, or those for vectors; any without it."""
        self._unit = ("cube" if is_cube else "vector", self._here("cube"))
        return self

    def tile(
        self,
        name: str,
        rows: int,
        cols: int,
        dtype: ElementType | DType = ElementType.F32,
        space: MemorySpace | None = None,
    ) -> PTOFunctionBuilder:
        """Declare a tile of `rows` x `cols` elements, in the memory `space` or where the target chooses."""
        loc = self._here("tile")
        place = space.among(TILE_SPACES) if isinstance(space, MemorySpace) else None
        if space is not None and place is None:
            expected = "a memory of tiles: " + ", ".join(f"`MemorySpace.{s.name}`" for s in TILE_SPACES)
            raise BadOperand(op="tile", expected=expected, found=f"`{space!s}`", loc=loc)
        for size in (rows, cols):
            if not is_positive(size):
                raise BadOperand(op="tile", expected="positive sizes", found=f"`{size!r}`", loc=loc)
        return self._declare(
            "tile", name, TileDeclaration(TileType(rows, cols, dtype_of(dtype, loc), place), loc)
        )

    def scalar(self, name: str, dtype: ElementType | DType = ElementType.F32) -> PTOFunctionBuilder:
        """Declare a scalar: a variable, or, where no step assigns it, a parameter of the function.

        Integers have 64 bits, floats are f32.
        """
        loc = self._here("scalar")
        found = dtype_of(dtype, loc)
        if scalar_dtype(found) is None:
            advice = "scalars are integers, truth values or f32"
            raise NotYetSupported(feature=f"a scalar of type {found}", detail="", advice=advice, loc=loc)
        return self._declare("scalar", name, ScalarDeclaration(found, loc))

    def memref(
        self,
        name: str,
        space: MemorySpace = MemorySpace.GM,
        dtype: ElementType | DType = ElementType.F32,
        shape: Sequence[int | None] | None = None,
    ) -> PTOFunctionBuilder:
        """Declare a tensor: a parameter in global memory, or one that the run makes in another space.

        Args:
            name: of the parameter.
            space: where it is.
            dtype: type of its elements.
            shape: its extents; a None is taken from the array. Without it, it is a column of the tiles that
                are moved, one below the other.
        """
        loc = self._here("memref")
        for size in shape or ():
            if size is not None and not is_positive(size):
                raise BadOperand(op="memref", expected="positive sizes", found=f"`{size!r}`", loc=loc)
        if not isinstance(space, MemorySpace):
            expected = "a memory space: `MemorySpace.GLOBAL`"
            raise BadOperand(op="memref", expected=expected, found=f"`{space!r}`", loc=loc)
        place = space.among(LOCAL_SPACES)
        is_local = space is not MemorySpace.GM
        if is_local and place is None and space is not MemorySpace.LOCAL:
            expected = "a memory of memrefs: `GM`, `L2`, `L1` or `LOCAL`"
            raise BadOperand(op="memref", expected=expected, found=f"`{space!s}`", loc=loc)
        known = None if shape is None else tuple(shape)
        found = Memref(dtype_of(dtype, loc), known, is_local, loc, space=place)
        return self._declare("memref", name, found)

    def intermediate_buffer(
        self,
        name: str,
        size: int,
        dtype: ElementType | DType = ElementType.F32,
        scope_local: bool = True,
    ) -> PTOFunctionBuilder:
        """Declare a tensor that the run makes, `size` bytes large; its calls decide how wide it is.

        A buffer that outlives the run (`scope_local=False`) is refused: declare a memref of global memory.
        """
        loc = self._here("intermediate_buffer")
        found = dtype_of(dtype, loc)
        if not is_positive(size) or size % found.itemsize:
            expected = f"a multiple of {found.itemsize} bytes"
            raise BadOperand(op="intermediate_buffer", expected=expected, found=f"`{size!r}`", loc=loc)
        if not scope_local:
            feature, advice = "a buffer that outlives the run", "declare it with `.memref(...)`"
            raise NotYetSupported(feature=feature, detail="", advice=advice, loc=loc)
        declaration = Memref(found, None, True, loc, size // found.itemsize)
        return self._declare("intermediate_buffer", name, declaration)

    def import_func(self, name: str) -> PTOFunctionBuilder:
        """State that the module has a function, which an import of another module brought."""
        return self._step(ImportStep(name, self._here("import_func")))

    # --- memory ---

    def load(self, dst: str, src: str, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Load a tile from a memref: `row` counts tiles of this shape, `col` elements."""
        return self._step(Transfer("load", dst, src, row, col, None, self._here("load")))

    def store(self, dst: str, src: str, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Store a tile to a memref, in either order; offsets are those of `load`."""
        return self._step(Transfer("store", dst, src, row, col, None, self._here("store")))

    def store_fp(
        self, dst: str, src: str, fp: str, row: Operand = 0, col: Operand = 0, rmode: str = ""
    ) -> PTOFunctionBuilder:
        """Store tile[i, j] * fp[0, j] to a memref, converted to its type as `mov_fp` does; else `store`."""
        loc = self._here("store_fp")
        return self._step(Transfer("store_fp", dst, src, row, col, None, loc, (fp, rmode)))

    def gather(self, dst: str, src: str, rows: str) -> PTOFunctionBuilder:
        """Load the rows of a memref that the i32 tile `rows` names."""
        return self._step(Transfer("gather", dst, src, 0, 0, rows, self._here("gather")))

    def scatter(self, dst: str, src: str, rows: str) -> PTOFunctionBuilder:
        """Store a tile to the rows of a memref that the i32 tile `rows` names."""
        return self._step(Transfer("scatter", dst, src, 0, 0, rows, self._here("scatter")))

    def prefetch(self, dst: str, src: str, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Bring nearer what `load` of the same arguments will read; the tile `dst` stays as it is."""
        return self._step(Transfer("prefetch", dst, src, row, col, None, self._here("prefetch")))

    # --- control ---

    def for_loop(
        self,
        iv: str,
        lb: Operand,
        ub: Operand,
        step: int = 1,
        max_range: int | None = None,
        min_range: int | None = None,
        tile_levels: Mapping[int, int] | None = None,
        kind: str = "range",
    ) -> PTOFunctionBuilder:
        """Begin a loop of `iv` over `lb`, `lb + step`, ... below `ub`.

        Args:
            iv: its variable.
            lb: the first value: a number, the name of a scalar, or an expression as text.
            ub: the end.
            step: a positive number.
            max_range: in an Orchestration, the largest block of iterations that binary expansion makes,
                rounded up to a power of two.
            min_range: its smallest block; what is left is one loop.
            tile_levels: rows of the tiles that blocks of some sizes work on; 0 is the rest.
            kind: `range`, ordered by data alone, `parallel` or `seq`.
        """
        loc = self._here("for_loop")
        require_name("for_loop", iv, loc)
        if not is_positive(step):
            raise BadOperand(op="for_loop", expected="a positive step", found=f"`{step!r}`", loc=loc)
        if kind not in ("range", "parallel", "seq"):
            expected = "the kind `range`, `parallel` or `seq`"
            raise BadOperand(op="for_loop", expected=expected, found=f"`{kind}`", loc=loc)
        expansion = read_expansion("for_loop", max_range, min_range, tile_levels, loc)
        return self._step(LoopStep(iv, lb, ub, step, loc, kind, expansion))

    def end_for(self) -> PTOFunctionBuilder:
        """End the loop that was begun last."""
        return self._step(EndStep(LoopStep, "end_for", self._here("end_for")))

    def tile_loop(
        self, iv: str, tile: str, dimension: str | int = "rows", step: int = 1
    ) -> PTOFunctionBuilder:
        """Begin a loop over the valid rows (0) or columns (1) of a tile; `end_for` ends it."""
        loc = self._here("tile_loop")
        require_name("tile_loop", iv, loc)
        number = {"rows": 0, "cols": 1, "row": 0, "col": 1, 0: 0, 1: 1}.get(dimension)
        if number is None:
            expected = "the dimension `rows` or `cols`"
            raise BadOperand(op="tile_loop", expected=expected, found=f"`{dimension}`", loc=loc)
        if not is_positive(step):
            raise BadOperand(op="tile_loop", expected="a positive step", found=f"`{step!r}`", loc=loc)
        return self._step(LoopStep(iv, 0, 0, step, loc, tile=(tile, number)))

    def nested_tile_loop(
        self, outer: str, inner: str, tile: str, row_step: int = 1, col_step: int = 1
    ) -> PTOFunctionBuilder:
        """Begin a loop over the rows of a tile with one over its columns; `end_nested_loop` ends both."""
        return self.tile_loop(outer, tile, 0, row_step).tile_loop(inner, tile, 1, col_step)

    def end_nested_loop(self) -> PTOFunctionBuilder:
        """End the two loops of `nested_tile_loop`."""
        return self._step(EndStep(LoopStep, "end_nested_loop", self._here("end_nested_loop"), 2))

    def while_loop(self, condition: Operand) -> PTOFunctionBuilder:
        """Begin a loop of an InCore function that runs while a condition holds."""
        return self._step(WhileStep(condition, self._here("while_loop")))

    def end_while(self, num_tests: int = 0) -> PTOFunctionBuilder:
        """End the loop that `while_loop` began.

        Args:
            num_tests: the steps just before that compute its condition: `continue_loop` comes to them.
        """
        return self._step(EndStep(WhileStep, "end_while", self._here("end_while"), num_tests=num_tests))

    def break_loop(self) -> PTOFunctionBuilder:
        """End the innermost loop; it still counts to its end, and does nothing."""
        return self._step(LeaveStep("break_loop", True, self._here("break_loop")))

    def continue_loop(self) -> PTOFunctionBuilder:
        """End this iteration of the innermost loop."""
        return self._step(LeaveStep("continue_loop", False, self._here("continue_loop")))

    def if_then(self, condition: Operand) -> PTOFunctionBuilder:
        """Begin a conditional: a scalar, true where it is not 0, or an expression as text."""
        return self._step(IfStep(condition, None, self._here("if_then")))

    def if_bit(self, scalar: Operand, bit: int) -> PTOFunctionBuilder:
        """Begin a conditional on one bit of an integer, given as its power of two."""
        loc = self._here("if_bit")
        if not is_positive(bit) or bit & (bit - 1) or bit > 1 << 62:
            raise BadOperand(op="if_bit", expected="a power of two", found=f"`{bit!r}`", loc=loc)
        return self._step(IfStep(scalar, bit, loc))

    def else_block(self) -> PTOFunctionBuilder:
        """Begin the branch for when the condition does not hold."""
        return self._step(ElseStep(self._here("else_block")))

    def endif(self) -> PTOFunctionBuilder:
        """End the conditional that was begun last."""
        return self._step(EndStep(IfStep, "endif", self._here("endif")))

    end_if = endif

    # --- scalars ---

    def scalar_li(self, dst: str, value: Operand) -> PTOFunctionBuilder:
        """Assign a number; once, outside of loops and branches, it is a name for the number."""
        return self._scalar("scalar_li", dst, "li", value)

    def scalar_mov(self, dst: str, src: Operand) -> PTOFunctionBuilder:
        """Assign the value of a scalar, or of an expression as text, to a variable."""
        return self._scalar("scalar_mov", dst, "mov", src)

    def scalar_load(self, dst: str, src: str, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Assign an element of a memref of integers, by its row and column.

        An InCore function stores nothing to it; of what an Orchestration's tasks write, the walk waits for.
        """
        return self._scalar("scalar_load", dst, "load", src, row, col)

    def getval(self, dst: str, src: str, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Assign element [row, col] of a tile to a scalar; outside of its valid part is an error."""
        return self._scalar("getval", dst, "getval", src, row, col)

    def scalar_store(self, dst: str, src: Operand, row: Operand = 0, col: Operand = 0) -> PTOFunctionBuilder:
        """Store a scalar to an element of a memref, by its row and column."""
        loc = self._here("scalar_store")
        memref, tile = self._declared.get(dst), f"{dst}_element"
        if not isinstance(memref, Memref):
            advice = did_you_mean(dst, self._declared)
            raise UnknownName(name=dst, where=f"`{self.name}` as a memref", advice=advice, loc=loc)
        while tile in self._declared:
            tile += "_"
        self._declare("scalar_store", tile, TileDeclaration(TileType(1, 1, memref.dtype), loc))
        self._step(TileStep("expands", "scalar_store", tile, (src,), {}, loc))
        return self._step(Transfer("store", dst, tile, row, col, None, loc))

    def scalar_add(self, dst: str, a: Operand, b: Operand) -> PTOFunctionBuilder:
        """Assign a + b."""
        return self._scalar("scalar_add", dst, "add", a, b)

    def scalar_sub(self, dst: str, a: Operand, b: Operand) -> PTOFunctionBuilder:
        """Assign a - b."""
        return self._scalar("scalar_sub", dst, "sub", a, b)

    def scalar_mul(self, dst: str, a: Operand, b: Operand) -> PTOFunctionBuilder:
        """Assign a * b."""
        return self._scalar("scalar_mul", dst, "mul", a, b)

    def scalar_div(self, dst: str, a: Operand, b: Operand) -> PTOFunctionBuilder:
        """Assign a / b; integers are divided toward zero, and by zero is an error."""
        return self._scalar("scalar_div", dst, "div", a, b)

    def scalar_cmp(self, dst: str, a: Operand, b: Operand, mode: CompareMode | str) -> PTOFunctionBuilder:
        """Assign whether a and b compare so."""
        op = mode.value if isinstance(mode, CompareMode) else str(mode).lower()
        if op not in COMPARE_MODES:
            expected = "one of " + ", ".join(COMPARE_MODES)
            raise BadOperand(
                op="scalar_cmp", expected=expected, found=f"`{mode}`", loc=self._here("scalar_cmp")
            )
        return self._scalar("scalar_cmp", dst, op, a, b)

    def _scalar(self, method: str, dst: str, op: str, *operands: Operand) -> PTOFunctionBuilder:
        loc = self._here(method)
        require_name(method, dst, loc)
        return self._step(ScalarStep(dst, op, operands, loc))

    # --- calls and the end ---

    def call(self, callee: str, args: Mapping[str, Argument] | None = None) -> PTOFunctionBuilder:
        """Call a function of the module.

        Args:
            callee: its name.
            args: per parameter the name of a tensor; in an Orchestration also `(tensor, row, col)`, with
                `row` in tiles of the callee and `col` in elements, or `(tensor, row, col, rows, cols)` for a
                part of a tile; for a scalar a number, a name or an expression as text.
        """
        loc = self._here("call")
        if not (args is None or isinstance(args, Mapping)):
            expected = '`{"parameter": argument}`'
            raise BadOperand(op="call", expected=expected, found=f"`{args!r}`", loc=loc)
        return self._step(CallStep(callee, dict(args or {}), loc))

    def print(self, text: str, *values: Operand) -> PTOFunctionBuilder:
        """Print a text and the values of scalars and tiles, as lines that name the task; in InCore functions.

        Args:
            text: what comes first.
            values: names of tiles and scalars, and expressions as text.
        """
        loc = self._here("print")
        if not isinstance(text, str):
            raise BadOperand(op="print", expected="a text first", found=repr(text), loc=loc)
        return self._step(PrintStep(text, values, loc))

    def check(self, condition: Operand, message: str) -> PTOFunctionBuilder:
        """End the run with a message unless a condition holds; in InCore functions."""
        loc = self._here("check")
        if not isinstance(message, str):
            raise BadOperand(op="check", expected="a message", found=repr(message), loc=loc)
        return self._step(CheckStep(condition, message, loc))

    def ret(self, values: object = None) -> PTOFunctionBuilder:
        """End the function; it is the last step, and functions return nothing."""
        loc = self._here("ret")
        if values is not None:
            raise NotYetSupported(
                feature="a value in `ret`", detail="", advice="store it to a memref", loc=loc
            )
        return self._step(ReturnStep(loc))

    def build(self) -> Function:
        """Return the function, which the module then has.

        Raises:
            FrontendError: at the first step that has no meaning, with its place.
        """
        names = {*self._declared, *(step.dst for step in self._steps if isinstance(step, ScalarStep))}
        names |= {step.var for step in self._steps if isinstance(step, LoopStep)}
        tree = without_leaving(nest(self._steps), names)
        functions = {} if self.module is None else {f.name: f for f in self.module.get_all_functions()}
        for number, step in enumerate(self._steps):
            if isinstance(step, ReturnStep) and number + 1 < len(self._steps):
                raise BadBlock(method="ret", expected="the end", found="more steps", loc=step.loc)
            if isinstance(step, ImportStep) and step.name not in functions:
                advice = did_you_mean(step.name, functions) or "`PTOModule.import_function` brings it"
                raise UnknownKernel(name=step.name, advice=advice, loc=step.loc)
        make = make_kernel if self._is_in_core else make_workload
        function = make(Recorded(self.name, self._declared, functions, tree, self._start))
        unit, loc = self._unit
        if isinstance(function, KernelFunction):
            function = replace(function, unit=unit)
        elif unit != "any":
            raise wrong_kind("cube", self.name, "InCore", loc)
        if self.module is not None:
            self.module.add_function(function)
        return function

    def __getattr__(self, name: str) -> Callable[..., PTOFunctionBuilder]:
        """Refuse a method that is neither defined above nor a row of the instruction table."""
        if name.startswith("_"):
            raise AttributeError(name)
        known = [method for method in dir(type(self)) if not method.startswith("_")]
        close = closest(name, known)
        advice = REFUSED.get(name.lower(), f"did you mean `{close}`?" if close else "")
        raise UnknownInstruction(name=name, advice=advice, loc=caller_location())
