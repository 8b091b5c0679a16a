"""The kernels and the workload of products with a packed matrix."""

# Annotations depend on the form, which the language reads.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from typing import Any, Final

from pto_wsp.lang.annotations import In, Out
from pto_wsp.lang.kernel import pto
from pto_wsp.lang.kernel.kernel import kernel
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload, workload
from pto_wsp.support.record import record
from pto_wsp.types import DYN, f32, u8
from pto_wsp.types.dtype import DType
from pto_wsp.types.quantised import CHUNK, Format, rounded_cols

ROWS: Final = 64
"""Rows of a task: with 4096 columns they stay in the second cache while panels pass by."""

DEPTH: Final = 256
"""Terms that are added per step; a multiple of the blocks of all quantised formats."""

FEW_ROWS_COLS: Final = 64
"""Columns of a task where `ROWS` or fewer are multiplied, and a panel takes as long as reading it."""

GROUP: Final = rounded_cols(CHUNK)
"""Bytes of a group of a row that is rounded."""

SLAB_COLS: Final = 1024
"""Columns that all rows are multiplied with before the next ones are read from memory."""

ACTIVATIONS: Final = {"relu": pto.relu, "gelu": pto.gelu, "silu": pto.silu}


@record
class MatmulForm:
    """What one compiled program is made for; sizes are those of a run.

    Attributes:
        x_dtype: element type of the rows and of the result.
        w_dtype: element type of the packed matrix, or the format of a quantised one.
        activation: a name of `ACTIVATIONS`; empty for none.
        is_widened: rows of small floats are widened before anything is multiplied.
        panel_cols: columns of a panel of the matrix.
        is_scaled: columns of the product are multiplied by a scale.
        is_rounded: rows are rounded to i8 before anything is multiplied.
    """

    x_dtype: DType
    w_dtype: DType | Format
    activation: str
    is_widened: bool
    panel_cols: int
    is_scaled: bool = False
    is_rounded: bool = False


def _blocks(form: MatmulForm) -> tuple[str, int, int, int]:
    """Return the format of a quantised matrix, rows of a block, blocks per step, and elements of a row."""
    if not isinstance(form.w_dtype, Format):
        return "", 1, 1, form.panel_cols
    block = form.w_dtype.block
    return form.w_dtype.name, block, DEPTH // block, form.panel_cols * form.w_dtype.column_bytes


def matmul_workload(form: MatmulForm) -> Workload:
    """Return Y = activation((X @ W) * S + B).

    X is [m, k], W [panels, k, panel_cols] with zeros after column n, or [panels, blocks, bytes] u8 where it
    is quantised. S is [1, n] f32 and used if the form is scaled, B [1, n] f32, Y [m, n]. Rows that are
    widened or rounded go into `Ready`, which is [m, k] f32 or [m, bytes] u8.
    """
    COLS = form.panel_cols
    X_TYPE, IS_WIDENED, IS_SCALED = form.x_dtype, form.is_widened, form.is_scaled
    IS_ROUNDED = form.is_rounded
    FORMAT, BLOCK, BLOCKS, ROW = _blocks(form)
    IS_QUANTISED = bool(FORMAT)
    W_TYPE = u8 if isinstance(form.w_dtype, Format) else form.w_dtype
    DEPTH_NAME = "blocks" if IS_QUANTISED else "k"
    ROW_TYPE = u8 if IS_ROUNDED else f32 if IS_WIDENED else X_TYPE
    # Columns of a step, and of a block, of rows as they are multiplied.
    STEP, PART = (rounded_cols(n) if IS_ROUNDED else n for n in (DEPTH, BLOCK))
    ROW_NAME = "bytes" if IS_ROUNDED else "k"
    IS_ACTIVE = bool(form.activation)
    activate: Any = ACTIVATIONS.get(form.activation)

    @kernel
    def widen(x: In[Tensor[X_TYPE, DYN, DYN]], y: Out[Tensor[f32, DYN, DYN]]):
        for r in pto.tiles(x.rows, ROWS):
            for c in pto.tiles(x.cols, DEPTH):
                pto.store(y[r, c], pto.cast(x[r, c], f32))

    @kernel
    def round_rows(x: In[Tensor[X_TYPE, DYN, DYN]], y: Out[Tensor[u8, DYN, DYN]]):
        for r in pto.tiles(x.rows, ROWS):
            for g in range(x.cols // CHUNK):
                rounded = pto.quantise(x[r, g * CHUNK : g * CHUNK + CHUNK])
                pto.store(y[r, g * GROUP : g * GROUP + GROUP], rounded)

    @kernel
    def multiply(
        x: In[Tensor[ROW_TYPE, DYN, DYN]],
        w: In[Tensor[W_TYPE, DYN, DYN, ROW]],
        s: In[Tensor[f32, 1, DYN]],
        b: In[Tensor[f32, 1, DYN]],
        y: Out[Tensor[X_TYPE, DYN, DYN]],
    ):
        for r in pto.tiles(x.rows, ROWS):
            for c in pto.tiles(y.cols, COLS):
                for valid in pto.tiles(c.extent, COLS):  # one, from 0 on: columns of a panel
                    total = pto.full((x[r].rows, valid.extent), 0.0)
                    if IS_QUANTISED:
                        for i in range(x.cols // STEP):
                            panel = w[c.start // COLS, i * BLOCKS : i * BLOCKS + BLOCKS]
                            left = x[r, i * STEP : i * STEP + STEP]
                            total = pto.matmul_quantised(total, left, panel, FORMAT)
                        for i in range(x.cols // STEP * BLOCKS, x.cols // PART):
                            left, panel = x[r, i * PART : i * PART + PART], w[c.start // COLS, i : i + 1]
                            total = pto.matmul_quantised(total, left, panel, FORMAT)
                    else:
                        for k in pto.tiles(x.cols, DEPTH):
                            total = pto.matmul(x[r, k], w[c.start // COLS, k, valid], acc=total)
                    if IS_SCALED:
                        total = total * s[:, c]
                    total = total + b[:, c]
                    if IS_ACTIVE:
                        total = activate(total)
                    pto.store(y[r, c], pto.cast(total, X_TYPE))

    @workload
    def matmul(
        X: Tensor[X_TYPE, "m", "k"],
        W: Tensor[W_TYPE, "panels", DEPTH_NAME, ROW],
        S: Tensor[f32, 1, "n"],
        B: Tensor[f32, 1, "n"],
        Y: Tensor[X_TYPE, "m", "n"],
        Ready: Tensor[ROW_TYPE, "m", ROW_NAME],
    ):
        """All rows pass a slab of panels before the next one is read."""
        if IS_WIDENED:
            for r in P.tiles("m", ROWS):
                widen[r](x=X[r], y=Ready[r])
        if IS_ROUNDED:
            for r in P.tiles("m", ROWS):
                round_rows[r](x=X[r], y=Ready[r])
        rows: Any = Ready if IS_WIDENED or IS_ROUNDED else X

        def product(r: Any, first: Any, count: Any) -> None:
            columns = slice(first * COLS, (first * COLS + count * COLS).min(Y.shape[1]))
            panels = W[first : first + count]
            multiply[first](x=rows[r], w=panels, s=S[:, columns], b=B[:, columns], y=Y[r, columns])

        with P.when(X.shape[0] <= ROWS):
            for some in P.tiles("panels", FEW_ROWS_COLS // COLS):
                product(slice(None), some.start, some.extent)
        with P.otherwise():
            for slab in P.tiles("panels", SLAB_COLS // COLS):
                for r in P.tiles("m", ROWS):
                    for i in P(slab.extent):
                        product(r, slab.start + i, 1)

    return matmul
