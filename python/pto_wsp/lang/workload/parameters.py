"""Parameters of a workload: what its function gets for each."""

from __future__ import annotations

import numpy as np

from pto_wsp.errors import BadAnnotation, WrongValue
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Var
from pto_wsp.lang.annotations import RaggedAnnotation, ScalarAnnotation, SparseAnnotation, TensorAnnotation
from pto_wsp.lang.arithmetic import SCALAR_DTYPES
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.functions import BodyParameter
from pto_wsp.lang.workload.ragged import Ragged, RaggedAxis
from pto_wsp.lang.workload.sparse import Sparse, SparseAxis
from pto_wsp.lang.workload.tensor import Tensor, parse_dim
from pto_wsp.lang.workload.trace import WorkloadTrace
from pto_wsp.lang.workload.untyped import Untyped
from pto_wsp.support.arrays import shown
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DType, dtype_of_numpy
from pto_wsp.types.layout import ROW_MAJOR, MemLayout
from pto_wsp.types.tile import ScalarType


class Parameter:
    """One parameter of a workload's function."""

    def __init__(
        self,
        trace: WorkloadTrace,
        declared: BodyParameter,
        name: str,
        defaults: dict[str, np.ndarray | Ragged | Sparse | int | float],
    ) -> None:
        self.trace = trace
        self.name = name
        self.function = declared.source.function.__name__
        self.annotation = declared.annotation
        self.defaults = defaults
        self.loc = declared.loc(name)

    def stand_in(self, value: object) -> object:
        """Declare the parameter, with its default if there is one, and return what the function gets."""
        match self.annotation:
            case TensorAnnotation(args=args):
                return self._tensor(*self._tensor_type(args), value)
            case ScalarAnnotation(arg=dtype):
                return self._scalar(dtype, value)
            case RaggedAnnotation(outer=outer):
                return self._ragged(outer, value)
            case SparseAnnotation(outer=outer):
                return self._sparse(outer, value)
            case Dense(extent=extent):
                return self._fixed(extent, value)
            case DenseDyn(extent=extent):
                return self._axis(extent if value is None else value)
            case None:
                return self._untyped(value)
            case _ if self.annotation is DenseDyn:
                return self._axis(value)
        raise self._bad("Tensor, Scalar, DenseDyn or Dense[n]", text_of(self.annotation))

    def _untyped(self, value: object) -> object:
        if isinstance(value, (Dense, DenseDyn)):
            return self._axis(value)
        if isinstance(value, Tensor):
            return self._tensor(value.dtype, value.dims, value.layout, value)
        if isinstance(value, np.ndarray) and (dtype := dtype_of_numpy(value.dtype)) is not None:
            return self._tensor(dtype, tuple("" for _ in value.shape), ROW_MAJOR, value)
        param = Untyped(self.name, self.trace.name, self.loc)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.defaults[self.name] = value
        elif value is not None:
            raise self._wrong_value("an axis, an array, a Tensor or a number", value)
        self.trace.declare(self.name, param, self.loc)
        return param

    def _fixed(self, extent: int, value: object) -> int:
        if value not in (None, extent, self.annotation):
            raise self._wrong_value(f"the extent {extent}", value)
        self.trace.fixed[self.name] = extent
        return extent

    def _axis(self, value: object) -> Scalar:
        extent = value.extent if isinstance(value, (Dense, DenseDyn)) else value
        if extent is not None and (not isinstance(extent, (int, np.integer)) or extent < 0):
            raise self._wrong_value("an extent >= 0", value)
        default = None if extent is None else int(extent)
        self.trace.declare(self.name, w.SizeParam(self.name, default, self.loc), self.loc)
        return Scalar(Var(self.name))

    def _ragged(self, outer: object, value: object) -> RaggedAxis:
        if value is not None and not isinstance(value, Ragged):
            raise self._wrong_value("Ragged.lengths(array) or Ragged.indptr(array)", value)
        size = self._size_of_rows("Ragged", outer)
        return self._axis_of_rows(RaggedAxis(w.RaggedParam(self.name, size, self.loc)), value)

    def _sparse(self, outer: object, value: object) -> RaggedAxis:
        if value is not None and not isinstance(value, Sparse):
            raise self._wrong_value("Sparse.csr(indptr, indices) or Sparse.lists(rows)", value)
        size = self._size_of_rows("Sparse", outer)
        return self._axis_of_rows(SparseAxis(w.SparseParam(self.name, size, self.loc)), value)

    def _size_of_rows(self, kind: str, outer: object) -> str:
        """Return the size that an axis has a row for each element of."""
        if not isinstance(outer, str) or not outer.isidentifier():
            raise self._bad(f'{kind}["size"]', f"{kind}[{outer!r}]")
        if outer in self.trace.fixed and outer not in self.trace.sizes:
            extent = Const(self.trace.fixed[outer])
            self.trace.sizes[outer] = w.SizeParam(outer, loc=self.loc, value=extent)
        return outer

    def _axis_of_rows(self, axis: RaggedAxis, value: Ragged | Sparse | None) -> RaggedAxis:
        if value is not None:
            self.defaults[self.name] = value
        self.trace.declare(self.name, axis, self.loc)
        self.trace.declare_sizes((axis.param.outer,), self.loc)
        return axis

    def _scalar(self, dtype: object, value: object) -> Scalar:
        if not isinstance(dtype, DType) or dtype not in SCALAR_DTYPES:
            raise self._bad("one of " + ", ".join(map(str, SCALAR_DTYPES)), repr(dtype))
        if value is not None:
            if not isinstance(value, (int, float)):
                raise self._wrong_value("a number", value)
            self.defaults[self.name] = value
        self.trace.declare(self.name, w.ScalarParam(self.name, ScalarType(dtype), self.loc), self.loc)
        return Scalar(Var(self.name, dtype))

    def _tensor(self, dtype: DType, dims: tuple[int | str, ...], layout: MemLayout, value: object) -> Tensor:
        data = value.data if isinstance(value, Tensor) else value
        if data is not None:
            if not isinstance(data, np.ndarray):
                raise self._wrong_value("an array", value)
            self.defaults[self.name] = data
        fixed = [self.trace.fixed.get(str(d), d) for d in dims]
        named = tuple(self.trace.unique(f"{self.name}_{i}") if d == "" else d for i, d in enumerate(fixed))
        if not layout.accepts(named):
            raise self._bad(f"two or more dimensions, the last a number, for {layout}", f"{dims}")
        tensor = Tensor(shape=named, dtype=dtype, layout=layout).called(self.name)
        self.trace.declare(self.name, tensor, self.loc)
        self.trace.declare_sizes(named, self.loc)
        return tensor

    def _tensor_type(self, args: tuple[object, ...]) -> tuple[DType, tuple[int | str, ...], MemLayout]:
        last = args[-1] if args else None
        layout = last if isinstance(last, MemLayout) else ROW_MAJOR
        sizes = args[1:-1] if layout is last else args[1:]
        dims = tuple(parse_dim(d) for d in sizes)
        if not args or not isinstance(args[0], DType) or not dims or None in dims:
            shown = ", ".join(map(text_of, args))
            raise self._bad(
                "Tensor[dtype, dims...] with numbers and names, then a layout or none", f"Tensor[{shown}]"
            )
        return args[0], tuple(d for d in dims if d is not None), layout

    def _bad(self, expected: str, found: str) -> BadAnnotation:
        return BadAnnotation(
            param=self.name,
            function=self.function,
            expected=expected,
            found=found,
            loc=self.loc,
            hint="workloads take `Tensor[...]`, `Scalar[dtype]`, `DenseDyn`, `Dense[n]`, `Ragged[size]` and "
            "`Sparse[size]`",
        )

    def _wrong_value(self, expected: str, value: object) -> WrongValue:
        is_container = isinstance(value, (list, dict, set))
        hint = (
            "what Python code uses while the workload is built can be a variable around it"
            if is_container
            else None
        )
        return WrongValue(name=self.name, expected=expected, found=text_of(value), loc=self.loc, hint=hint)


def text_of(value: object) -> str:
    """Return a value as messages show it."""
    return value.__name__ if isinstance(value, type) else shown(value)
