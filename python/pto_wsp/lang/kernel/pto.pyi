"""Signatures of the functions of a kernel, for type checkers; a test compares them with the table."""

from collections.abc import Iterable

from pto_wsp.lang.operands import Operand, Scalar, Tile
from pto_wsp.lang.workload.ranges import Span
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.types.dtype import DType

Value = Tile | Tensor
"""A tile, or a view that is loaded."""

Extent = int | Scalar
"""A number, or an extent such as `x.rows` whose largest value is known."""

def load(view: Value) -> Tile:
    """Read a view into a tile."""

def store(view: Value, tile: Operand) -> None:
    """Write a tile, or a scalar everywhere, to an output."""

def gather(view: Value, rows: Value) -> Tile:
    """Rows of a view that `rows`, [1, R] or [R, 1] of i32, names; a row outside the view is an error."""

def scatter(view: Value, rows: Value, tile: Value) -> None:
    """Write a tile to rows of a view; of rows that `rows` names twice the last stays."""

def prefetch(view: Value, rows: Value = ...) -> None:
    """Move the data of a later load or gather nearer to the core. No result changes."""

def print(*values: str | Value) -> None:
    """Print text, scalars and the valid parts of tiles, as lines that name the task."""

def check(condition: bool | Scalar, message: str) -> None:
    """End the kernel and the run with a message unless a condition on scalars holds."""

def full(shape: tuple[Extent, Extent], value: float | Scalar, dtype: DType = ...) -> Tile:
    """A tile [rows, cols] with one value everywhere; f32 by default."""

def zeros(shape: tuple[Extent, Extent], dtype: DType = ...) -> Tile:
    """A tile [rows, cols] of zeros; f32 by default."""

def tiles(extent: Extent, tile: int) -> Iterable[Span]:
    """Loop over ranges of `tile` elements; the last one is clipped to the extent."""

def block_idx() -> Scalar:
    """Number of the call within its task, from 0 to `block_num() - 1`; see `@kernel(block_dim=n)`."""

def block_num() -> int:
    """Calls that make one task: the kernel's `block_dim`."""

def add(a: Operand, b: Operand) -> Tile: ...
def sub(a: Operand, b: Operand) -> Tile: ...
def mul(a: Operand, b: Operand) -> Tile: ...
def div(a: Operand, b: Operand) -> Tile: ...
def rem(a: Operand, b: Operand) -> Tile:
    """Remainder with the sign of `a`."""

def maximum(a: Operand, b: Operand) -> Tile: ...
def minimum(a: Operand, b: Operand) -> Tile: ...
def bitwise_and(a: Operand, b: Operand) -> Tile: ...
def bitwise_or(a: Operand, b: Operand) -> Tile: ...
def bitwise_xor(a: Operand, b: Operand) -> Tile: ...
def shl(a: Operand, b: Operand) -> Tile:
    """Bits of `a` shifted left; an amount below 0 or beyond the bits gives 0."""

def shr(a: Operand, b: Operand) -> Tile:
    """Bits of `a` shifted right; signed types copy the sign."""

def prelu(a: Operand, b: Operand) -> Tile:
    """A where it is above 0, else a * b."""

def addc(a: Value, b: Operand, c: Value) -> Tile:
    """A + b + c."""

def subc(a: Value, b: Operand, c: Value) -> Tile:
    """A - b + c."""

def abs(x: Value) -> Tile: ...
def neg(x: Value) -> Tile: ...
def bitwise_not(x: Value) -> Tile: ...
def relu(x: Value) -> Tile: ...
def recip(x: Value) -> Tile: ...
def sqrt(x: Value) -> Tile: ...
def rsqrt(x: Value) -> Tile: ...
def exp(x: Value) -> Tile: ...
def expm1(x: Value) -> Tile:
    """E to the x, less 1: precise near 0."""

def log(x: Value) -> Tile: ...
def log1p(x: Value) -> Tile:
    """Logarithm of 1 + x: precise near 0."""

def tanh(x: Value) -> Tile: ...
def erf(x: Value) -> Tile: ...
def sigmoid(x: Value) -> Tile: ...
def silu(x: Value) -> Tile: ...
def gelu(x: Value) -> Tile: ...
def rowsum(x: Value) -> Tile:
    """[R, C] to [R, 1]."""

def rowmax(x: Value) -> Tile:
    """[R, C] to [R, 1]."""

def rowmin(x: Value) -> Tile:
    """[R, C] to [R, 1]."""

def colsum(x: Value) -> Tile:
    """[R, C] to [1, C]."""

def colmax(x: Value) -> Tile:
    """[R, C] to [1, C]."""

def colmin(x: Value) -> Tile:
    """[R, C] to [1, C]."""

def rowexpand(x: Value, cols: Extent) -> Tile:
    """[R, 1] to [R, cols]."""

def colexpand(x: Value, rows: Extent) -> Tile:
    """[1, C] to [rows, C]."""

def matmul(a: Value, b: Value, acc: Value | None = ...) -> Tile:
    """A @ b in f32, added to `acc` if given; `a.T` and `b.T` cost nothing."""

def matmul_acc(acc: Value, a: Value, b: Value) -> Tile:
    """Acc + a @ b in f32."""

def matmul_quantised(acc: Value, x: Value, w: Value, format: str) -> Tile:
    """Acc + x @ w, where w holds blocks of a matrix that is packed in a format."""

def quantise(x: Value) -> Tile:
    """[R, C] to [R, C / 32 * 40] of u8: rows rounded to i8 in groups, for `matmul_quantised`."""

def matmul_bias(a: Value, b: Value, bias: Value) -> Tile:
    """A @ b + bias, a row [1, N] of f32."""

def transpose(x: Value) -> Tile: ...
def reshape(x: Value, shape: tuple[Extent, Extent]) -> Tile:
    """The valid elements in row-major order as another shape; another count is an error."""

def extract(x: Value, shape: tuple[Extent, Extent], row: int | Scalar = ..., col: int | Scalar = ...) -> Tile:
    """The part of `shape` that starts at [row, col]."""

def insert(x: Value, part: Value, row: int | Scalar = ..., col: int | Scalar = ...) -> Tile:
    """The tile with `part` in place of what starts at [row, col]."""

def setval(x: Value, value: int | float | Scalar, row: int | Scalar = ..., col: int | Scalar = ...) -> Tile:
    """The tile with a scalar as its element at [row, col]; `x[row, col]` reads one."""

def put(x: Value, values: Value, indices: Value) -> Tile:
    """The tile with values[i, j] at [i, indices[i, j]]."""

def compare(a: Operand, b: Operand, mode: str) -> Tile:
    """Mask of a `mode` b; modes are eq, ne, lt, le, gt, ge."""

def where(mask: Value, a: Operand, b: Operand) -> Tile:
    """A where the mask holds, else b."""

def iota(shape: tuple[Extent, Extent], start: int | Scalar = ..., dtype: DType = ...) -> Tile:
    """A tile [rows, cols] with start + j in column j; i32 by default."""

def sort32(x: Value, indices: Value = ...) -> Tile:
    """Pairs (i64) of values and indices, each block of 32 columns sorted; indices are columns by default."""

def sort(x: Value, indices: Value = ...) -> Tile:
    """Pairs (i64) of values and indices, each row sorted: larger values first, then lower indices."""

def mrgsort(pairs: Value, run: int) -> Tile:
    """Each four neighbouring runs of `run` sorted pairs merged into one."""

def merge(a: Value, b: Value, k: Extent = ...) -> Tile:
    """The first `k` pairs (all by default) of two rows of sorted pairs."""

def extract_topk_values(pairs: Value, k: Extent) -> Tile:
    """Values (f32) of the first `k` pairs of each row; -inf where there are fewer."""

def extract_topk_indices(pairs: Value, k: Extent) -> Tile:
    """Indices (i32) of the first `k` pairs of each row; -1 where there are fewer."""

def take(x: Value, indices: Value) -> Tile:
    """Element [i, indices[i, j]] of `x` at [i, j]; an index outside the row is an error."""

def rowargmax(x: Value) -> Tile:
    """[R, C] to [R, 1] i32: the first column of the largest element, -1 when empty."""

def rowargmin(x: Value) -> Tile:
    """[R, C] to [R, 1] i32: the first column of the smallest element, -1 when empty."""

def cast(x: Value, dtype: DType, rmode: str = ...) -> Tile:
    """Convert; float to integer rounds toward zero and saturates.

    `rmode` rounds a float: rint, round (ties away from 0), floor, ceil, trunc; to its own type, to whole
    numbers.
    """

def mov_fp(src: Value, fp: Value, dtype: DType, rmode: str = ...) -> Tile:
    """`src` [R, C] times `fp` [1, C] of f32, computed in f32, converted: to integers saturating.

    `rmode` rounds as in `cast`; without it, to nearest even.
    """

def store_fp(view: Value, src: Value, fp: Value, rmode: str = ...) -> None:
    """Store `src` [R, C] times `fp` [1, C], converted to the view's type as `mov_fp` does."""

def matmul_mx(a: Value, a_scale: Value, b: Value, b_scale: Value) -> Tile:
    """[M, K] @ [K, N] to [M, N] f32, where each 32 terms have scales: [M, K / 32] and [K / 32, N]."""

def gatherb(src: Value, offsets: Value) -> Tile:
    """Elements at byte `offsets` of i32, counted row by row; outside, or inside of one, is an error."""
