"""The functions of a kernel: one per row of the instruction table that has a name, and others."""

from __future__ import annotations

import inspect
from typing import NoReturn

from pto_wsp.errors import OutsideWorkload
from pto_wsp.isa import BY_FUNCTION, Form
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.lang.kernel.help import help_text, signature
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

OTHER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "zeros": ("shape", "dtype"),
    "tiles": ("extent", "tile"),
    "prefetch": ("view", "rows"),
    "print": ("values",),
    "check": ("condition", "message"),
    "block_idx": (),
    "block_num": (),
    "mov_fp": ("src", "fp", "dtype", "rmode"),
    "store_fp": ("view", "src", "fp", "rmode"),
    "matmul_mx": ("a", "a_scale", "b", "b_scale"),
    "gatherb": ("src", "offsets"),
}
"""Functions without a row of their own, with their parameters."""

PARAMETERS: dict[Form, tuple[str, ...]] = {
    Form.LOAD: ("view",),
    Form.STORE: ("view", "tile"),
    Form.GATHER: ("view", "rows"),
    Form.SCATTER: ("view", "rows", "tile"),
    Form.UNARY: ("x",),
    Form.BINARY: ("a", "b"),
    Form.TERNARY: ("a", "b", "c"),
    Form.FILL: ("shape", "value", "dtype"),
    Form.ROW_REDUCE: ("x",),
    Form.COL_REDUCE: ("x",),
    Form.ROW_EXPAND: ("x", "cols"),
    Form.COL_EXPAND: ("x", "rows"),
    Form.MATMUL: ("a", "b", "acc"),
    Form.MATMUL_ACC: ("acc", "a", "b"),
    Form.MATMUL_BIAS: ("a", "b", "bias"),
    Form.MATMUL_QUANTISED: ("acc", "x", "w", "format"),
    Form.QUANTISE: ("x",),
    Form.TRANSPOSE: ("x",),
    Form.RESHAPE: ("x", "shape"),
    Form.EXTRACT: ("x", "shape", "row", "col"),
    Form.INSERT: ("x", "part", "row", "col"),
    Form.SET: ("x", "value", "row", "col"),
    Form.COMPARE: ("a", "b", "mode"),
    Form.SELECT: ("mask", "a", "b"),
    Form.CONVERT: ("x", "dtype", "rmode"),
    Form.IOTA: ("shape", "start", "dtype"),
    Form.SORT: ("x", "indices"),
    Form.MERGE_RUNS: ("pairs", "run"),
    Form.MERGE: ("a", "b", "k"),
    Form.TOPK_VALUES: ("pairs", "k"),
    Form.TOPK_INDICES: ("pairs", "k"),
    Form.TAKE: ("x", "indices"),
    Form.PUT: ("x", "values", "indices"),
    Form.ROW_ARG: ("x",),
}
"""Parameters of the functions of a form."""

OPTIONAL = frozenset(
    {
        (Form.FILL, "dtype"),
        (Form.MATMUL, "acc"),
        (Form.CONVERT, "rmode"),
        *((form, place) for form in (Form.EXTRACT, Form.INSERT, Form.SET) for place in ("row", "col")),
        (Form.IOTA, "start"),
        (Form.IOTA, "dtype"),
        (Form.SORT, "indices"),
        (Form.MERGE, "k"),
    }
)
"""Optional parameters of forms; the dtype of `zeros` is optional, too."""


@record
class PtoFunction:
    """A function of a kernel; calling it outside of one is an error."""

    name: str

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse: kernels are read, not executed."""
        raise OutsideWorkload(what=f"`pto.{self.name}`", where="kernel", loc=caller_location())

    def __get__(self, instance: object, owner: object = None) -> PtoFunction:
        """Return itself. What has `__get__` and is not a function is a routine to `help`."""
        return self

    @property
    def __doc__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What `help` shows."""
        return help_text(self.name)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __signature__(self) -> inspect.Signature:
        return signature(self.parameters, self.required, takes_any=self.takes_any)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        if self.name in OTHER_FUNCTIONS:
            return OTHER_FUNCTIONS[self.name]
        return PARAMETERS[BY_FUNCTION[self.name].form]

    @property
    def takes_any(self) -> bool:
        """Whether it takes any number of arguments, none of them by name."""
        return self.name == "print"

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the parameters that have no default."""
        if self.takes_any:
            return ()
        if self.name == "zeros":
            return ("shape",)
        if self.name == "prefetch":
            return ("view",)
        if self.name in COMPOSITIONS:
            return tuple(p for p in self.parameters if p != "rmode")
        row = BY_FUNCTION.get(self.name)
        return tuple(p for p in self.parameters if row is None or (row.form, p) not in OPTIONAL)


FUNCTIONS: dict[str, PtoFunction] = {name: PtoFunction(name) for name in (*BY_FUNCTION, *OTHER_FUNCTIONS)}
