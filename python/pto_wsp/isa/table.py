"""The instruction table: one row per instruction, the single source for everything said about it.

From a row follow the builder method and the `pto.` function, the `.pto` text, the type and shape rules (by
its form), the numpy meaning, the error bound, and, through each target's template table, legality and
emission. The costs of an instruction are data of a device (`pto_wsp.device`). tests/python/isa walks the
table: every row has every part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pto_wsp.isa import meaning as np_meaning
from pto_wsp.isa.forms import Form
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16, u32


@record
class ErrorBound:
    """How far a result may be from the meaning computed in f64.

    `exact`: not at all. `ulp`: `amount` units in the last place of the result type, except for subnormal
    results. `sum`: (n / 8 + 4) * eps * sum |terms| over the n terms added.
    """

    kind: str
    amount: float = 0.0


EXACT = ErrorBound("exact")
SUM = ErrorBound("sum")


def ulp(amount: float) -> ErrorBound:
    """Return a bound of `amount` units in the last place."""
    return ErrorBound("ulp", amount)


@record
class Instruction:
    """A row of the table.

    Attributes:
        name: the builder's method, and the key of target templates.
        function: name under `pto.`; None for operators and annotations.
        mnemonic: in `.pto` text.
        form: operands and shape rule.
        dtypes: element types of the tile operands that it is defined for.
        numpy: meaning, called with the operand arrays, then the scalars, then the attributes (a dict); None
            for load and store, which move data.
        bound: error bound against `numpy` computed in f64.
        doc: one sentence for the reference page.
    """

    name: str
    function: str | None
    mnemonic: str
    form: Form
    dtypes: frozenset[DType]
    numpy: Callable[..., np.ndarray] | None
    bound: ErrorBound
    doc: str


FLOATS = frozenset({f32, f16, bf16})
INTEGERS = frozenset({i8, i16, i32, i64, u8, u16, u32})
NUMBERS = FLOATS | INTEGERS
FACTORS = FLOATS | {i8}
"""Element types of matrices that are multiplied."""

BITS = INTEGERS | {b1}
ANY = NUMBERS | {b1}

PAIRS = frozenset({i64})

TABLE: dict[str, Instruction] = {}


def _row(
    name: str,
    function: str | None,
    form: Form,
    dtypes: frozenset[DType],
    numpy: Callable[..., np.ndarray] | None,
    bound: ErrorBound,
    doc: str,
    mnemonic: str = "",
) -> None:
    TABLE[name] = Instruction(name, function, mnemonic or f"t{name}", form, dtypes, numpy, bound, doc)


def _elementwise(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Drop the attributes, which plain elementwise rows do not have."""
    return lambda *operands: function(*operands[:-1])


# memory
_row("load", "load", Form.LOAD, ANY, None, EXACT, "Read the valid part of a tile from a view.")
_row("store", "store", Form.STORE, ANY, None, EXACT, "Write the valid part of a tile to a view.")

_row(
    "gather",
    "gather",
    Form.GATHER,
    ANY,
    None,
    EXACT,
    "Read the rows of a view that an i32 row or column lists; a row outside the view is an error.",
    mnemonic="mgather",
)
_row(
    "scatter",
    "scatter",
    Form.SCATTER,
    ANY,
    None,
    EXACT,
    "Write the rows of a view that an i32 row or column lists; the last of equal rows wins.",
    mnemonic="mscatter",
)

# tile with tile, and with a scalar
for _name, _function, _dtypes, _meaning, _doc, _note in (
    ("add", "add", NUMBERS, np.add, "Sum", "integers wrap"),
    ("sub", "sub", NUMBERS, np.subtract, "Difference", "integers wrap"),
    ("mul", "mul", NUMBERS, np.multiply, "Product", "integers wrap"),
    ("div", "div", NUMBERS, np_meaning.divide, "Quotient", "integers truncate, x / 0 is 0, MIN / -1 wraps"),
    ("rem", "rem", NUMBERS, np_meaning.remainder, "Remainder with the sign of a", "integers: x rem 0 is 0"),
    ("max", "maximum", NUMBERS, np.maximum, "Larger element", "NaN if either is NaN"),
    ("min", "minimum", NUMBERS, np.minimum, "Smaller element", "NaN if either is NaN"),
    ("bitwise_and", "bitwise_and", BITS, np.bitwise_and, "Bits that both have", "of masks: both"),
    ("bitwise_or", "bitwise_or", BITS, np.bitwise_or, "Bits that either has", "of masks: either"),
    ("bitwise_xor", "bitwise_xor", BITS, np.bitwise_xor, "Bits that one alone has", "of masks: one alone"),
    ("shl", "shl", INTEGERS, np_meaning.shl, "Bits shifted left", "by less than 0 or beyond the bits: 0"),
    (
        "shr",
        "shr",
        INTEGERS,
        np_meaning.shr,
        "Bits shifted right",
        "the sign is copied; beyond the bits: all out",
    ),
):
    for _suffix, _form, _other in (("", Form.BINARY, "a tile"), ("s", Form.TILE_SCALAR, "a scalar")):
        _row(
            _name + _suffix,
            None if _suffix else _function,
            _form,
            _dtypes,
            _elementwise(_meaning),
            EXACT,
            f"{_doc}, with {_other}; {_note}.",
            f"t{_name.removeprefix('bitwise_')}{_suffix}",
        )
_prelu = _elementwise(np_meaning.prelu)
_row(
    "prelu",
    "prelu",
    Form.BINARY,
    FLOATS,
    _prelu,
    EXACT,
    "x where x > 0, else x * slope; NaN stays NaN.",
)
_row("lrelu", None, Form.TILE_SCALAR, FLOATS, _prelu, EXACT, "The same with a scalar slope.")

# two additions together
for _name, _first in (("addc", np.add), ("subc", np.subtract)):
    _sign = "+" if _name == "addc" else "-"
    _row(
        _name,
        _name,
        Form.TERNARY,
        NUMBERS,
        lambda a, b, c, attrs, first=_first: np.add(first(a, b), c),
        EXACT,
        f"(a {_sign} b) + c, both in f32 for floats, then rounded once to the element type; integers wrap.",
    )
    _row(
        _name.replace("c", "sc"),
        None,
        Form.BINARY_SCALAR,
        NUMBERS,
        lambda a, c, b, attrs, first=_first: np.add(first(a, b), c),
        EXACT,
        f"(a {_sign} scalar) + c, rounded like `{_name}`; the scalar is the last operand; integers wrap.",
    )

# tile alone
for _name, _dtypes, _meaning, _bound, _doc in (
    ("mov", ANY, np.copy, EXACT, "Copy of a tile."),
    ("abs", NUMBERS, np.abs, EXACT, "Absolute value; the smallest integer stays unchanged."),
    ("neg", NUMBERS, np.negative, EXACT, "Negation; integers wrap."),
    (
        "bitwise_not",
        BITS,
        np.invert,
        EXACT,
        "Bitwise not; of a mask: the opposite mask.",
    ),
    ("relu", NUMBERS, lambda a: np.maximum(a, 0), EXACT, "max(x, 0); NaN stays NaN."),
    ("recip", FLOATS, lambda a: 1 / a, EXACT, "1 / x."),
    ("sqrt", FLOATS, np.sqrt, EXACT, "Square root; NaN below 0."),
    ("rsqrt", FLOATS, lambda a: 1 / np.sqrt(a), ulp(2), "1 / sqrt(x)."),
    ("exp", FLOATS, np.exp, ulp(2), "e to the x."),
    ("expm1", FLOATS, np.expm1, ulp(2), "e to the x, minus 1; precise near 0."),
    ("log", FLOATS, np.log, ulp(2), "Natural logarithm; -inf at 0, NaN below."),
    (
        "log1p",
        FLOATS,
        np.log1p,
        ulp(2),
        "Natural logarithm of 1 + x; precise near 0; -inf at -1, NaN below.",
    ),
    ("tanh", FLOATS, np.tanh, ulp(2), "Hyperbolic tangent."),
    ("erf", FLOATS, np_meaning.erf, ulp(2), "Error function."),
    ("sigmoid", FLOATS, np_meaning.sigmoid, ulp(2.5), "1 / (1 + exp(-x))."),
    ("silu", FLOATS, np_meaning.silu, ulp(2.5), "x / (1 + exp(-x)); -0 at -inf."),
    ("gelu", FLOATS, np_meaning.gelu, ulp(4), "x / 2 * (1 + erf(x / sqrt(2))), precise below 0 too."),
):
    _function = None if _name == "mov" else _name
    _mnemonic = f"t{_name.removeprefix('bitwise_')}"
    _row(_name, _function, Form.UNARY, _dtypes, _elementwise(_meaning), _bound, _doc, _mnemonic)

# reductions
for _name, _ufunc, _identity, _bound, _doc in (
    ("sum", np.add, "zero", SUM, "Sum of each {line}; integers wrap; 0 when empty."),
    (
        "max",
        np.maximum,
        "lowest",
        EXACT,
        "Largest element of each {line}; -inf (integers: lowest) when empty.",
    ),
    (
        "min",
        np.minimum,
        "highest",
        EXACT,
        "Smallest element of each {line}; inf (integers: highest) when empty.",
    ),
):
    for _prefix, _form, _axis, _line in (
        ("row", Form.ROW_REDUCE, 1, "row"),
        ("col", Form.COL_REDUCE, 0, "column"),
    ):
        _row(
            _prefix + _name,
            _prefix + _name,
            _form,
            NUMBERS,
            np_meaning.reduce(_ufunc, _axis, _identity),
            _bound,
            _doc.format(line=_line),
        )

# broadcasts
for _name, _meaning, _sign in (
    ("add", np.add, "a[i, j] + {line}"),
    ("sub", np.subtract, "a[i, j] - {line}"),
    ("mul", np.multiply, "a[i, j] * {line}"),
    ("div", np_meaning.divide, "a[i, j] / {line}"),
    ("max", np.maximum, "max(a[i, j], {line})"),
    ("min", np.minimum, "min(a[i, j], {line})"),
):
    for _prefix, _form, _line in (
        ("rowexpand", Form.ROW_BROADCAST, "row[i, 0]"),
        ("colexpand", Form.COL_BROADCAST, "col[0, j]"),
    ):
        _doc = _sign.format(line=_line) + "."
        _row(_prefix + _name, None, _form, NUMBERS, _elementwise(_meaning), EXACT, _doc)
_row("rowexpand", "rowexpand", Form.ROW_EXPAND, ANY, np_meaning.expand, EXACT, "dst[i, j] = a[i, 0].")
_row("colexpand", "colexpand", Form.COL_EXPAND, ANY, np_meaning.expand, EXACT, "dst[i, j] = a[0, j].")
_row(
    "expands",
    "full",
    Form.FILL,
    ANY,
    lambda value, attrs: np.full(attrs["valid_shape"], value),
    EXACT,
    "A tile with one value everywhere.",
)

_row(
    "iota",
    "iota",
    Form.IOTA,
    INTEGERS,
    lambda start, attrs: np.broadcast_to(start + np.arange(attrs["valid_shape"][1]), attrs["valid_shape"]),
    EXACT,
    "start + j in column j of every row; integers wrap.",
    mnemonic="tci",
)

# order: a pair is an i64 that orders by value, then by index (meaning.py)
for _name, _function in (("sort32", np_meaning.sort32), ("sort", np_meaning.sort)):
    _what = "each block of 32 columns" if _name == "sort32" else "each row"
    _doc = "into pairs of value and index: descending values, NaN first, equal values by index."
    _row(_name, _name, Form.SORT, FLOATS, _function, EXACT, f"Sort {_what} {_doc}")
_row(
    "mrgsort",
    "mrgsort",
    Form.MERGE_RUNS,
    PAIRS,
    np_meaning.mrgsort,
    EXACT,
    "Merge each four neighbouring sorted runs of `run` pairs into one; an unsorted run is an error.",
)
_row(
    "merge",
    "merge",
    Form.MERGE,
    PAIRS,
    np_meaning.merge,
    EXACT,
    "The first k pairs of two sorted rows, then absent pairs; an unsorted row is an error.",
)
for _name, _form, _function, _rest in (
    ("extract_topk_values", Form.TOPK_VALUES, np_meaning.topk_values, "-inf"),
    ("extract_topk_indices", Form.TOPK_INDICES, np_meaning.topk_indices, "-1"),
):
    _doc = f"The {_name.rsplit('_')[-1]} of the first k pairs of each row; {_rest} where there are fewer."
    _row(_name, _name, _form, PAIRS, _function, EXACT, _doc)
_row(
    "take",
    "take",
    Form.TAKE,
    ANY,
    np_meaning.take,
    EXACT,
    "dst[i, j] = x[i, indices[i, j]]; an index outside the row is an error.",
    mnemonic="tgather",
)
_row(
    "put",
    "put",
    Form.PUT,
    ANY,
    np_meaning.put,
    EXACT,
    "x with values[i, j] at [i, indices[i, j]]; the last of equal indices wins; outside is an error.",
    mnemonic="tscatter",
)
for _name, _function in (("rowargmax", np_meaning.argmax), ("rowargmin", np_meaning.argmin)):
    _doc = f"Column of the {'largest' if _name == 'rowargmax' else 'smallest'} element of each row"
    _doc += "; the lowest of equal ones; NaN comes first; -1 when empty."
    _row(_name, _name, Form.ROW_ARG, NUMBERS, _function, EXACT, _doc)

# matrices
_row(
    "matmul",
    "matmul",
    Form.MATMUL,
    FACTORS,
    np_meaning.matmul,
    SUM,
    "Matrix product a @ b, plus acc if given. Sums are f32; sums of two i8 operands are i32 and wrap. "
    "If only one operand is i8, it is b. Operands may be transposed.",
)
_row(
    "matmul_acc",
    "matmul_acc",
    Form.MATMUL_ACC,
    FACTORS,
    lambda acc, a, b, attrs: acc + np_meaning.matmul(a, b, attrs),
    SUM,
    "acc + a @ b; acc has the type of the sums of `matmul`.",
    mnemonic="tmatmul.acc",
)
_row(
    "matmul_bias",
    "matmul_bias",
    Form.MATMUL_BIAS,
    FACTORS,
    np_meaning.matmul_bias,
    SUM,
    "a @ b + bias; bias is a row of the type of the sums of `matmul`.",
    mnemonic="tmatmul.bias",
)

_row(
    "matmul_quantised",
    "matmul_quantised",
    Form.MATMUL_QUANTISED,
    FLOATS | {u8},
    np_meaning.matmul_quantised,
    SUM,
    "acc + x @ w, where w holds blocks of a matrix packed in a `format`. Sums of float rows are f32. Rows "
    "from `quantise` (u8) are summed in i32 per group, then in f32.",
    mnemonic="tmatmul.q",
)
_row(
    "quantise",
    "quantise",
    Form.QUANTISE,
    FLOATS,
    np_meaning.quantise,
    EXACT,
    "Round rows to i8 in groups of 32 columns. The bytes hold each group with its scale and its sums.",
)

# parts and places
_row(
    "transpose",
    "transpose",
    Form.TRANSPOSE,
    ANY,
    lambda a, attrs: a.T,
    EXACT,
    "dst[i, j] = a[j, i].",
    mnemonic="ttrans",
)

for _name, _form, _meaning, _doc in (
    (
        "reshape",
        Form.RESHAPE,
        np_meaning.reshape,
        "The valid elements, in row-major order, in another shape; a shape with another count is an error.",
    ),
    (
        "extract",
        Form.EXTRACT,
        np_meaning.extract,
        "The part of x that starts at [row, col]; a part outside x is an error.",
    ),
    (
        "insert",
        Form.INSERT,
        np_meaning.insert,
        "x with the part that starts at [row, col] replaced; a part outside x is an error.",
    ),
    (
        "setval",
        Form.SET,
        np_meaning.setval,
        "x with its valid element [row, col] replaced by a scalar; another position is an error.",
    ),
):
    _mnemonic = _name if _form is Form.SET else f"t{_name}"
    _row(_name, _name, _form, ANY, _meaning, EXACT, _doc, _mnemonic)

# compare, select, convert
_row(
    "cmp",
    "compare",
    Form.COMPARE,
    NUMBERS,
    np_meaning.compare,
    EXACT,
    "Mask that is true where `a mode b` holds; modes: eq, ne, lt, le, gt, ge.",
)
_row("cmps", None, Form.COMPARE_SCALAR, NUMBERS, np_meaning.compare, EXACT, "Mask of a `mode` scalar.")
_row(
    "sel",
    "where",
    Form.SELECT,
    ANY,
    lambda mask, a, b, attrs: np.where(mask, a, b),
    EXACT,
    "a where the mask is true, else b.",
)
_row(
    "sels",
    None,
    Form.SELECT_SCALAR,
    ANY,
    lambda mask, a, value, attrs: np.where(mask, a, np.asarray(value, a.dtype)),
    EXACT,
    "a where the mask holds, else the scalar.",
)
_row(
    "cvt",
    "cast",
    Form.CONVERT,
    ANY,
    np_meaning.convert,
    EXACT,
    "Convert to another type. Floats round to nearest even. Floats become integers toward zero, saturating, "
    "NaN as 0. Integers keep their low bits. `rmode` rounds floats instead: rint, round (ties away from 0), "
    "floor, ceil, trunc; with the same float type it gives whole numbers.",
)

BY_FUNCTION: dict[str, Instruction] = {i.function: i for i in TABLE.values() if i.function}
BY_MNEMONIC: dict[str, Instruction] = {i.mnemonic: i for i in TABLE.values()}
