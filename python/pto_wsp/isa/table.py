"""The instruction table: one row per instruction, the single source for everything said about it.

From a row follow the builder method and the `pto.` function, the `.pto` text, the type and shape rules (by
its form), the numpy meaning, the error bound, the cycle cost, and, through each target's template table,
legality and emission. tests/python/isa walks the table: every row has every part.
Source: seed 004 sections 1.1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pto_wsp.isa import meaning as np_meaning
from pto_wsp.isa.forms import Form
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16, u32


@record
class Bound:
    """How far a result may be from the meaning computed in f64.

    `exact`: not at all. `ulp`: `amount` units in the last place of the result type, beside results smaller
    than the smallest normal number. `sum`: (n / 8 + 4) * eps * sum |terms| over the n terms added.
    """

    kind: str
    amount: float = 0.0


EXACT = Bound("exact")
SUM = Bound("sum")


def ulp(amount: float) -> Bound:
    """Return a bound of `amount` units in the last place."""
    return Bound("ulp", amount)


@record
class Cycles:
    """Cost on the simulated core: `startup` cycles and `per_repeat` for each 256 bytes of the operand.

    For the matmul forms a repeat is one 16 x 16 x 16 product. The figures are those of the A2/A3 core model:
    10 for elementwise work, 15 for transcendental functions, 20 for reductions, 50 for a product, 80 for a
    transfer.
    """

    startup: int
    per_repeat: int = 1


@record
class Instruction:
    """A row of the table.

    Attributes:
        name: the builder's method, and the key of target templates.
        function: name under `pto.`; None for what operators and annotations stand for.
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
    bound: Bound
    cycles: Cycles
    doc: str


FLOATS = frozenset({f32, f16, bf16})
INTEGERS = frozenset({i32, i64})
NUMBERS = FLOATS | INTEGERS
ANY = NUMBERS | {b1, i8, i16, u8, u16, u32}

PAIRS = frozenset({i64})

_MOVE, _SIMPLE, _MATH, _REDUCE, _CUBE = Cycles(80), Cycles(10), Cycles(15), Cycles(20, 2), Cycles(50)

TABLE: dict[str, Instruction] = {}


def _row(
    name: str,
    function: str | None,
    form: Form,
    dtypes: frozenset[DType],
    numpy: Callable[..., np.ndarray] | None,
    bound: Bound,
    cycles: Cycles,
    doc: str,
    mnemonic: str = "",
) -> None:
    TABLE[name] = Instruction(name, function, mnemonic or f"t{name}", form, dtypes, numpy, bound, cycles, doc)


def _elementwise(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Drop the attributes, which plain elementwise rows do not have."""
    return lambda *operands: function(*operands[:-1])


# memory
_row("load", "load", Form.LOAD, ANY, None, EXACT, _MOVE, "Read the valid part of a tile from a view.")
_row("store", "store", Form.STORE, ANY, None, EXACT, _MOVE, "Write the valid part of a tile to a view.")

_row(
    "gather",
    "gather",
    Form.GATHER,
    ANY,
    None,
    EXACT,
    _MOVE,
    "Read rows of a view that an i32 row or column names; a row outside the view is an error.",
    mnemonic="mgather",
)
_row(
    "scatter",
    "scatter",
    Form.SCATTER,
    ANY,
    None,
    EXACT,
    _MOVE,
    "Write rows of a view that an i32 row or column names; of rows named twice the last stays.",
    mnemonic="mscatter",
)

# tile with tile, and with a scalar
for _name, _function, _meaning, _doc, _note in (
    ("add", "add", np.add, "Sum", "integers wrap"),
    ("sub", "sub", np.subtract, "Difference", "integers wrap"),
    ("mul", "mul", np.multiply, "Product", "integers wrap"),
    ("div", "div", np_meaning.divide, "Quotient", "integers truncate, x / 0 is 0 and MIN / -1 wraps"),
    ("rem", "rem", np_meaning.remainder, "Remainder with the sign of the dividend", "integers: x rem 0 is 0"),
    ("max", "maximum", np.maximum, "Larger element", "NaN if either is NaN"),
    ("min", "minimum", np.minimum, "Smaller element", "NaN if either is NaN"),
):
    for _suffix, _form, _other in (("", Form.BINARY, "a tile"), ("s", Form.TILE_SCALAR, "a scalar")):
        _row(
            _name + _suffix,
            None if _suffix else _function,
            _form,
            NUMBERS,
            _elementwise(_meaning),
            EXACT,
            _SIMPLE,
            f"{_doc}, with {_other}; {_note}.",
        )

# tile alone
for _name, _dtypes, _meaning, _bound, _cycles, _doc in (
    ("mov", ANY, np.copy, EXACT, _SIMPLE, "Copy of a tile."),
    ("abs", NUMBERS, np.abs, EXACT, _SIMPLE, "Absolute value; the smallest integer stays."),
    ("neg", NUMBERS, np.negative, EXACT, _SIMPLE, "Negation; the smallest integer stays."),
    ("relu", NUMBERS, lambda a: np.maximum(a, 0), EXACT, _SIMPLE, "max(x, 0); NaN stays."),
    ("recip", FLOATS, lambda a: 1 / a, EXACT, _MATH, "1 / x."),
    ("sqrt", FLOATS, np.sqrt, EXACT, _MATH, "Square root; NaN below 0."),
    ("rsqrt", FLOATS, lambda a: 1 / np.sqrt(a), ulp(2), _MATH, "1 / sqrt(x)."),
    ("exp", FLOATS, np.exp, ulp(2), _MATH, "e to the x."),
    ("log", FLOATS, np.log, ulp(2), _MATH, "Natural logarithm; -inf at 0, NaN below."),
    ("tanh", FLOATS, np.tanh, ulp(2), _MATH, "Hyperbolic tangent."),
    ("erf", FLOATS, np_meaning.erf, ulp(2), _MATH, "Error function."),
    ("sigmoid", FLOATS, np_meaning.sigmoid, ulp(3), _MATH, "1 / (1 + exp(-x))."),
):
    _function = None if _name == "mov" else _name
    _row(_name, _function, Form.UNARY, _dtypes, _elementwise(_meaning), _bound, _cycles, _doc)

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
            _REDUCE,
            _doc.format(line=_line),
        )

# broadcasts
for _name, _meaning, _doc in (
    ("sub", np.subtract, "a[i, j] - row[i, 0]."),
    ("mul", np.multiply, "a[i, j] * row[i, 0]."),
    ("div", np_meaning.divide, "a[i, j] / row[i, 0]."),
):
    _row(
        "rowexpand" + _name,
        None,
        Form.ROW_BROADCAST,
        NUMBERS,
        _elementwise(_meaning),
        EXACT,
        _SIMPLE,
        _doc,
    )
_row(
    "rowexpand", "rowexpand", Form.ROW_EXPAND, ANY, np_meaning.expand, EXACT, _SIMPLE, "dst[i, j] = a[i, 0]."
)
_row(
    "colexpand", "colexpand", Form.COL_EXPAND, ANY, np_meaning.expand, EXACT, _SIMPLE, "dst[i, j] = a[0, j]."
)
_row(
    "expands",
    "full",
    Form.FILL,
    ANY,
    lambda value, attrs: np.full(attrs["valid_shape"], value),
    EXACT,
    _SIMPLE,
    "A tile with one value everywhere.",
)

_row(
    "iota",
    "iota",
    Form.IOTA,
    INTEGERS,
    lambda start, attrs: np.broadcast_to(start + np.arange(attrs["valid_shape"][1]), attrs["valid_shape"]),
    EXACT,
    _SIMPLE,
    "start + j in column j of every row; integers wrap.",
    mnemonic="tci",
)

# order: a pair is an i64 that orders by value, then by index (meaning.py)
for _name, _function in (("sort32", np_meaning.sort32), ("sort", np_meaning.sort)):
    _what = "Each block of 32 columns" if _name == "sort32" else "Each row"
    _doc = "of values and their indices as pairs: larger values first, NaN before all, equal ones by index."
    _row(_name, _name, Form.SORT, FLOATS, _function, EXACT, _REDUCE, f"{_what} {_doc}")
_row(
    "mrgsort",
    "mrgsort",
    Form.MERGE_RUNS,
    PAIRS,
    np_meaning.mrgsort,
    EXACT,
    _REDUCE,
    "Each four neighbouring runs of `run` sorted pairs merged into one; an unsorted run is an error.",
)
_row(
    "merge",
    "merge",
    Form.MERGE,
    PAIRS,
    np_meaning.merge,
    EXACT,
    _REDUCE,
    "The first k of two rows of sorted pairs, absent pairs where there are fewer; unsorted is an error.",
)
for _name, _form, _function, _rest in (
    ("extract_topk_values", Form.TOPK_VALUES, np_meaning.topk_values, "-inf"),
    ("extract_topk_indices", Form.TOPK_INDICES, np_meaning.topk_indices, "-1"),
):
    _doc = f"The {_name.rsplit('_')[-1]} of the first k pairs of each row; {_rest} where there are fewer."
    _row(_name, _name, _form, PAIRS, _function, EXACT, _SIMPLE, _doc)
_row(
    "take",
    "take",
    Form.TAKE,
    ANY,
    np_meaning.take,
    EXACT,
    _SIMPLE,
    "dst[i, j] = x[i, indices[i, j]]; an index outside the row is an error.",
    mnemonic="tgather",
)
for _name, _function in (("rowargmax", np_meaning.argmax), ("rowargmin", np_meaning.argmin)):
    _doc = f"Column of the {'largest' if _name == 'rowargmax' else 'smallest'} element of each row"
    _doc += ", the lowest of equal ones, a NaN before all others; -1 when empty."
    _row(_name, _name, Form.ROW_ARG, NUMBERS, _function, EXACT, _REDUCE, _doc)

# matrices
_row(
    "matmul",
    "matmul",
    Form.MATMUL,
    FLOATS,
    np_meaning.matmul,
    SUM,
    _CUBE,
    "Matrix product, accumulated in f32; operands may be transposed.",
)
_row(
    "matmul_acc",
    "matmul_acc",
    Form.MATMUL_ACC,
    FLOATS,
    lambda acc, a, b, attrs: acc + np_meaning.matmul(a, b, attrs),
    SUM,
    _CUBE,
    "acc + a @ b, accumulated in f32; operands may be transposed.",
    mnemonic="tmatmul.acc",
)
_row(
    "transpose",
    "transpose",
    Form.TRANSPOSE,
    ANY,
    lambda a, attrs: a.T,
    EXACT,
    _SIMPLE,
    "dst[i, j] = a[j, i].",
    mnemonic="ttrans",
)

# compare, select, convert
_row("cmp", "compare", Form.COMPARE, NUMBERS, np_meaning.compare, EXACT, _SIMPLE, "Mask of a `mode` b.")
_row(
    "cmps", None, Form.COMPARE_SCALAR, NUMBERS, np_meaning.compare, EXACT, _SIMPLE, "Mask of a `mode` scalar."
)
_row(
    "sel",
    "where",
    Form.SELECT,
    ANY,
    lambda mask, a, b, attrs: np.where(mask, a, b),
    EXACT,
    _SIMPLE,
    "a where the mask holds, else b.",
)
_row(
    "sels",
    None,
    Form.SELECT_SCALAR,
    ANY,
    lambda mask, a, value, attrs: np.where(mask, a, np.asarray(value, a.dtype)),
    EXACT,
    _SIMPLE,
    "a where the mask holds, else the scalar.",
)
_row(
    "cvt",
    "cast",
    Form.CONVERT,
    ANY,
    np_meaning.convert,
    EXACT,
    _SIMPLE,
    "Conversion; to a float to nearest even; float to integer toward zero, saturating, NaN to 0; "
    "integers keep their low bits.",
)

BY_FUNCTION: dict[str, Instruction] = {i.function: i for i in TABLE.values() if i.function}
BY_MNEMONIC: dict[str, Instruction] = {i.mnemonic: i for i in TABLE.values()}
