"""The methods of a builder that follow from the tables. `make docs` writes this file."""
# ruff: noqa

from typing import Self

from pto_wsp.builder.names import CompareMode
from pto_wsp.builder.steps import Operand

class InstructionMethods:
    """A method for each instruction on tiles, called by its row in the table: `add(dst, a, b)`."""

    def add(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Sum, with a tile; integers wrap."""
    def adds(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Sum, with a scalar; integers wrap."""
    def sub(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Difference, with a tile; integers wrap."""
    def subs(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Difference, with a scalar; integers wrap."""
    def mul(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Product, with a tile; integers wrap."""
    def muls(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Product, with a scalar; integers wrap."""
    def div(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Quotient, with a tile; integers truncate, x / 0 is 0, MIN / -1 wraps."""
    def divs(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Quotient, with a scalar; integers truncate, x / 0 is 0, MIN / -1 wraps."""
    def rem(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Remainder with the sign of a, with a tile; integers: x rem 0 is 0."""
    def rems(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Remainder with the sign of a, with a scalar; integers: x rem 0 is 0."""
    def max(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Larger element, with a tile; NaN if either is NaN."""
    def maxs(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Larger element, with a scalar; NaN if either is NaN."""
    def min(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Smaller element, with a tile; NaN if either is NaN."""
    def mins(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Smaller element, with a scalar; NaN if either is NaN."""
    def bitwise_and(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Bits that both have, with a tile; of masks: both."""
    def bitwise_ands(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Bits that both have, with a scalar; of masks: both."""
    def bitwise_or(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Bits that either has, with a tile; of masks: either."""
    def bitwise_ors(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Bits that either has, with a scalar; of masks: either."""
    def bitwise_xor(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Bits that one alone has, with a tile; of masks: one alone."""
    def bitwise_xors(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Bits that one alone has, with a scalar; of masks: one alone."""
    def shl(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Bits shifted left, with a tile; by less than 0 or beyond the bits: 0."""
    def shls(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Bits shifted left, with a scalar; by less than 0 or beyond the bits: 0."""
    def shr(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Bits shifted right, with a tile; the sign is copied; beyond the bits: all out."""
    def shrs(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """Bits shifted right, with a scalar; the sign is copied; beyond the bits: all out."""
    def prelu(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """x where x > 0, else x * slope; NaN stays NaN."""
    def lrelu(self, dst: str, x: Operand, value: Operand, /) -> Self:
        """The same with a scalar slope."""
    def addc(self, dst: str, a: Operand, b: Operand, c: Operand, /) -> Self:
        """(a + b) + c, both in f32 for floats, then rounded once to the element type; integers wrap."""
    def addsc(self, dst: str, a: Operand, b: Operand, value: Operand, /) -> Self:
        """(a + scalar) + c, rounded like `addc`; the scalar is the last operand; integers wrap."""
    def subc(self, dst: str, a: Operand, b: Operand, c: Operand, /) -> Self:
        """(a - b) + c, both in f32 for floats, then rounded once to the element type; integers wrap."""
    def subsc(self, dst: str, a: Operand, b: Operand, value: Operand, /) -> Self:
        """(a - scalar) + c, rounded like `subc`; the scalar is the last operand; integers wrap."""
    def mov(self, dst: str, x: Operand, /) -> Self:
        """Copy of a tile."""
    def abs(self, dst: str, x: Operand, /) -> Self:
        """Absolute value; the smallest integer stays unchanged."""
    def neg(self, dst: str, x: Operand, /) -> Self:
        """Negation; integers wrap."""
    def bitwise_not(self, dst: str, x: Operand, /) -> Self:
        """Bitwise not; of a mask: the opposite mask."""
    def relu(self, dst: str, x: Operand, /) -> Self:
        """max(x, 0); NaN stays NaN."""
    def recip(self, dst: str, x: Operand, /) -> Self:
        """1 / x."""
    def sqrt(self, dst: str, x: Operand, /) -> Self:
        """Square root; NaN below 0."""
    def rsqrt(self, dst: str, x: Operand, /) -> Self:
        """1 / sqrt(x)."""
    def exp(self, dst: str, x: Operand, /) -> Self:
        """e to the x."""
    def expm1(self, dst: str, x: Operand, /) -> Self:
        """e to the x, minus 1; precise near 0."""
    def log(self, dst: str, x: Operand, /) -> Self:
        """Natural logarithm; -inf at 0, NaN below."""
    def log1p(self, dst: str, x: Operand, /) -> Self:
        """Natural logarithm of 1 + x; precise near 0; -inf at -1, NaN below."""
    def tanh(self, dst: str, x: Operand, /) -> Self:
        """Hyperbolic tangent."""
    def erf(self, dst: str, x: Operand, /) -> Self:
        """Error function."""
    def sigmoid(self, dst: str, x: Operand, /) -> Self:
        """1 / (1 + exp(-x))."""
    def silu(self, dst: str, x: Operand, /) -> Self:
        """x / (1 + exp(-x)); -0 at -inf."""
    def gelu(self, dst: str, x: Operand, /) -> Self:
        """x / 2 * (1 + erf(x / sqrt(2))), precise below 0 too."""
    def rowsum(self, dst: str, x: Operand, /) -> Self:
        """Sum of each row; integers wrap; 0 when empty."""
    def colsum(self, dst: str, x: Operand, /) -> Self:
        """Sum of each column; integers wrap; 0 when empty."""
    def rowmax(self, dst: str, x: Operand, /) -> Self:
        """Largest element of each row; -inf (integers: lowest) when empty."""
    def colmax(self, dst: str, x: Operand, /) -> Self:
        """Largest element of each column; -inf (integers: lowest) when empty."""
    def rowmin(self, dst: str, x: Operand, /) -> Self:
        """Smallest element of each row; inf (integers: highest) when empty."""
    def colmin(self, dst: str, x: Operand, /) -> Self:
        """Smallest element of each column; inf (integers: highest) when empty."""
    def rowexpandadd(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] + row[i, 0]."""
    def colexpandadd(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] + col[0, j]."""
    def rowexpandsub(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] - row[i, 0]."""
    def colexpandsub(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] - col[0, j]."""
    def rowexpandmul(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] * row[i, 0]."""
    def colexpandmul(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] * col[0, j]."""
    def rowexpanddiv(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] / row[i, 0]."""
    def colexpanddiv(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """a[i, j] / col[0, j]."""
    def rowexpandmax(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """max(a[i, j], row[i, 0])."""
    def colexpandmax(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """max(a[i, j], col[0, j])."""
    def rowexpandmin(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """min(a[i, j], row[i, 0])."""
    def colexpandmin(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """min(a[i, j], col[0, j])."""
    def rowexpand(self, dst: str, x: Operand, /, *, cols: Operand = ...) -> Self:
        """dst[i, j] = a[i, 0]."""
    def colexpand(self, dst: str, x: Operand, /, *, rows: Operand = ...) -> Self:
        """dst[i, j] = a[0, j]."""
    def expands(self, dst: str, value: Operand, /, *, rows: Operand = ..., cols: Operand = ...) -> Self:
        """A tile with one value everywhere."""
    def iota(self, dst: str, value: Operand, /, *, rows: Operand = ..., cols: Operand = ...) -> Self:
        """start + j in column j of every row; integers wrap."""
    def sort32(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Sort each block of 32 columns into pairs of value and index: descending values, NaN first, equal
        values by index."""
    def sort(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """Sort each row into pairs of value and index: descending values, NaN first, equal values by
        index."""
    def mrgsort(self, dst: str, x: Operand, /, run: int) -> Self:
        """Merge each four neighbouring sorted runs of `run` pairs into one; an unsorted run is an error."""
    def merge(self, dst: str, a: Operand, b: Operand, /, *, cols: Operand = ...) -> Self:
        """The first k pairs of two sorted rows, then absent pairs; an unsorted row is an error."""
    def extract_topk_values(self, dst: str, x: Operand, /, *, cols: Operand = ...) -> Self:
        """The values of the first k pairs of each row; -inf where there are fewer."""
    def extract_topk_indices(self, dst: str, x: Operand, /, *, cols: Operand = ...) -> Self:
        """The indices of the first k pairs of each row; -1 where there are fewer."""
    def take(self, dst: str, a: Operand, b: Operand, /) -> Self:
        """dst[i, j] = x[i, indices[i, j]]; an index outside the row is an error."""
    def put(self, dst: str, a: Operand, b: Operand, c: Operand, /) -> Self:
        """x with values[i, j] at [i, indices[i, j]]; the last of equal indices wins; outside is an error."""
    def rowargmax(self, dst: str, x: Operand, /) -> Self:
        """Column of the largest element of each row; the lowest of equal ones; NaN comes first; -1 when
        empty."""
    def rowargmin(self, dst: str, x: Operand, /) -> Self:
        """Column of the smallest element of each row; the lowest of equal ones; NaN comes first; -1 when
        empty."""
    def matmul(
        self, dst: str, a: Operand, b: Operand, /, trans_a: bool = False, trans_b: bool = False
    ) -> Self:
        """Matrix product a @ b, plus acc if given. Sums are f32; sums of two i8 operands are i32 and wrap.
        If only one operand is i8, it is b. Operands may be transposed."""
    def matmul_acc(
        self, dst: str, a: Operand, b: Operand, c: Operand, /, trans_a: bool = False, trans_b: bool = False
    ) -> Self:
        """acc + a @ b; acc has the type of the sums of `matmul`."""
    def matmul_bias(
        self, dst: str, a: Operand, b: Operand, c: Operand, /, trans_a: bool = False, trans_b: bool = False
    ) -> Self:
        """a @ b + bias; bias is a row of the type of the sums of `matmul`."""
    def matmul_quantised(self, dst: str, a: Operand, b: Operand, c: Operand, /, format: str) -> Self:
        """acc + x @ w, where w holds blocks of a matrix packed in a `format`. Sums of float rows are f32.
        Rows from `quantise` (u8) are summed in i32 per group, then in f32."""
    def quantise(self, dst: str, x: Operand, /, *, cols: Operand = ...) -> Self:
        """Round rows to i8 in groups of 32 columns. The bytes hold each group with its scale and its sums."""
    def transpose(self, dst: str, x: Operand, /) -> Self:
        """dst[i, j] = a[j, i]."""
    def reshape(self, dst: str, x: Operand, /, *, rows: Operand = ..., cols: Operand = ...) -> Self:
        """The valid elements, in row-major order, in another shape; a shape with another count is an
        error."""
    def extract(
        self,
        dst: str,
        x: Operand,
        /,
        row: Operand = 0,
        col: Operand = 0,
        *,
        rows: Operand = ...,
        cols: Operand = ...,
    ) -> Self:
        """The part of x that starts at [row, col]; a part outside x is an error."""
    def insert(self, dst: str, a: Operand, b: Operand, /, row: Operand = 0, col: Operand = 0) -> Self:
        """x with the part that starts at [row, col] replaced; a part outside x is an error."""
    def setval(self, dst: str, x: Operand, value: Operand, /, row: Operand = 0, col: Operand = 0) -> Self:
        """x with its valid element [row, col] replaced by a scalar; another position is an error."""
    def cmp(self, dst: str, a: Operand, b: Operand, /, mode: CompareMode | str) -> Self:
        """Mask that is true where `a mode b` holds; modes: eq, ne, lt, le, gt, ge."""
    def cmps(self, dst: str, x: Operand, value: Operand, /, mode: CompareMode | str) -> Self:
        """Mask of a `mode` scalar."""
    def sel(self, dst: str, a: Operand, b: Operand, c: Operand, /) -> Self:
        """a where the mask is true, else b."""
    def sels(self, dst: str, a: Operand, b: Operand, value: Operand, /) -> Self:
        """a where the mask holds, else the scalar."""
    def cvt(self, dst: str, x: Operand, /, rmode: str = "") -> Self:
        """Convert to another type. Floats round to nearest even. Floats become integers toward zero,
        saturating, NaN as 0. Integers keep their low bits. `rmode` rounds floats instead: rint, round
        (ties away from 0), floor, ceil, trunc; with the same float type it gives whole numbers."""
    def mov_fp(self, dst: str, src: Operand, fp: Operand, /, rmode: str = "") -> Self:
        """dst[i, j] = src[i, j] * fp[0, j], converted to the destination's type. The product is in f32.
        Integers saturate, NaN becomes 0, and without `rmode` it rounds to nearest even, as in `tcvt`."""
    def matmul_mx(self, dst: str, a: Operand, a_scale: Operand, b: Operand, b_scale: Operand, /) -> Self:
        """dst [M, N] of f32 = the sum over blocks of 32 terms of (a * a_scale) @ (b * b_scale), in f32.
        `a` [M, K] and `b` [K, N] hold floats, or integers of 8 or 16 bits. `a_scale` [M, K / 32] and
        `b_scale` [K / 32, N] hold floats. K is a multiple of 32, and all of it is valid."""
    def gatherb(self, dst: str, src: Operand, offsets: Operand, /) -> Self:
        """dst[i, j] = the element at byte offsets[i, j] of `src` [R, C]. Row r begins at byte r * C *
        size. All C columns must be valid. An offset outside the valid part, or inside an element, is a
        run-time error."""
