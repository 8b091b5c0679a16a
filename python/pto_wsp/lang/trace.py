"""Recording a workload while its function runs once, with stand-ins for what only a run knows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from pto_wsp.errors import (
    BadAnnotation,
    BadOperand,
    NameClash,
    NotYetSupported,
    UnknownArgument,
    UnknownAxis,
    UnsupportedSyntax,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.lang.kernel import Kernel
from pto_wsp.lang.ragged import RaggedAxis
from pto_wsp.lang.scalar import Scalar, expression, integer_constant
from pto_wsp.lang.source import MISSING
from pto_wsp.lang.tensor import Span, Stretch, Subscript, Tensor, View
from pto_wsp.location import PACKAGE_DIR, Location
from pto_wsp.support.record import record
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DType, i64


@record
class OpenTask:
    """A task with its arguments as they were given, by parameter of its kernel."""

    kernel: Kernel
    args: dict[str, object]
    keys: tuple[Expr, ...]
    loc: Location | None


@record
class OpenLoop:
    """A loop whose body is being recorded, or has been."""

    kind: str
    var: str
    extent: Expr
    tile: int | None
    loc: Location | None
    body: list[OpenLoop | OpenTask]

    @property
    def index(self) -> Var:
        """Its variable."""
        return Var(self.var)


AXIS, SCALAR, TENSOR = "an axis", "a scalar", "a tensor"


class Untyped(Scalar):
    """A workload parameter without an annotation: an axis, a scalar or a tensor, as its uses decide.

    Attributes:
        kind: AXIS, SCALAR or TENSOR, or None as long as nothing uses it.
        dtype: element type of a scalar or tensor, None while unknown.
        rank: dimensions of a tensor, None while unknown.
    """

    __slots__ = ("dtype", "kind", "loc", "name", "rank", "workload")

    def __init__(self, name: str, workload: str, loc: Location | None) -> None:
        self.name = name
        self.workload = workload
        self.loc = loc
        self.kind: str | None = None
        self.dtype: DType | None = None
        self.rank: int | None = None

    def __repr__(self) -> str:
        return f"<parameter {self.name}>"

    @property
    def expr(self) -> Expr:
        """The parameter as a number: an axis unless it is a scalar already."""
        self.use(SCALAR if self.kind == SCALAR else AXIS)
        return Var(self.name, self.dtype or i64)

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> Tensor:
        self.use(TENSOR)
        return View(self, self.name).narrowed(index)

    def use(self, kind: str) -> None:
        """Note a use.

        Raises:
            BadAnnotation: an earlier use was of another kind.
        """
        if self.kind not in (None, kind):
            raise self.undecided("one kind of use", f"{self.kind} and {kind}")
        self.kind = kind

    def undecided(self, expected: str, found: str) -> BadAnnotation:
        """Return the error that this parameter needs an annotation."""
        return BadAnnotation(
            param=self.name,
            function=self.workload,
            expected=expected,
            found=found,
            loc=self.loc,
            hint="annotate it: `Tensor[dtype, dims...]`, `Scalar[dtype]` or `DenseDyn`",
        )


Param = Tensor | Untyped | RaggedAxis | w.ScalarParam | w.SizeParam


class Trace:
    """What has been recorded of a workload.

    Attributes:
        body: its loops and tasks.
        params: parameters of its function, by name.
        places: where they are declared.
        captured: tensors and axes found in the scopes around it, by the name of their variable.
        sizes: every size that is known so far.
        fixed: extents of parameters that are axes of fixed extent.
    """

    def __init__(self, name: str, loc: Location | None, scope: Mapping[str, object]) -> None:
        self.name = name
        self.loc = loc
        self.body: list[OpenLoop | OpenTask] = []
        self.params: dict[str, Param] = {}
        self.places: dict[str, Location | None] = {}
        self.captured: dict[str, Tensor | DenseDyn] = {}
        self.sizes: dict[str, w.SizeParam] = {}
        self.fixed: dict[str, int] = {}
        self._scope = scope
        self._open: list[OpenLoop] = []
        self._used: set[str] = set()

    # --- names ---

    def declare(self, name: str, param: Param, loc: Location | None) -> None:
        """Add a parameter of the function, declared at `loc`."""
        self.places[name] = loc
        if name in self.sizes:
            raise NameClash(kind="parameters and sizes", name=name, loc=self.loc)
        self.params[name] = param
        self._used.add(name)
        if isinstance(param, w.SizeParam):
            self.sizes[name] = param

    def declare_sizes(self, dims: Sequence[int | str], loc: Location | None) -> None:
        """Add the sizes that the dimensions of a tensor name; a parameter of that name is the size."""
        for dim in dims:
            if isinstance(dim, str) and dim not in self.sizes:
                param = self.params.get(dim)
                if isinstance(param, Untyped):
                    param.use(AXIS)
                elif param is not None:
                    raise NameClash(kind="parameters and sizes", name=dim, loc=loc)
                self._used.add(dim)
                self.sizes[dim] = w.SizeParam(dim, loc=loc)

    def unique(self, name: str) -> str:
        """Return `name`, or one like it that nothing has yet."""
        found, number = name, 0
        while found in self._used:
            number += 1
            found = f"{name}_{number}"
        self._used.add(found)
        return found

    def tensor_name(self, tensor: Tensor) -> str:
        """Return the name of a parameter, or of the variable that holds a captured tensor."""
        for name, param in (*self.params.items(), *self.captured.items()):
            if param is tensor:
                return name
        name = self._capture(tensor)
        self.declare_sizes(tensor.dims, self.loc)
        tensor.called(name)
        return name

    def _capture(self, value: Tensor | DenseDyn) -> str:
        name = _variable_of(value, self._scope)
        if name is None:
            raise UnknownArgument(
                kernel=self.name,
                problem=f"uses {value!r}, which no variable names",
                detail="no name for a parameter of the program",
                advice="keep it in a variable of the module or of the enclosing function",
                loc=self.loc,
            )
        if name in self._used:
            raise NameClash(kind="parameters", name=name, loc=self.loc)
        self._used.add(name)
        self.captured[name] = value
        return name

    # --- loops ---

    def extent_of(self, axis: object, loc: Location | None) -> Expr:
        """Return the extent of what a loop runs over.

        Raises:
            UnknownAxis: a name that no tensor or parameter has.
            BadOperand: nothing that can be looped over.
        """
        if isinstance(axis, str):
            return Const(self.fixed[axis]) if axis in self.fixed else Var(self._size_named(axis, loc))
        if isinstance(axis, Dense):
            axis = axis.extent
        if isinstance(axis, DenseDyn):
            return Var(self._axis_name(axis))
        if isinstance(axis, Stretch):
            return axis.extent_expr
        expr = expression(axis)
        size = None if expr is None else integer_constant(expr)
        if expr is None or expr.dtype is not i64 or (size is not None and size < 0):
            expected = "an extent, the name of a size, or an axis"
            raise BadOperand(op="P", expected=expected, found=_kind_of(axis), loc=loc)
        return expr

    def _size_named(self, name: str, loc: Location | None) -> str:
        if name not in self.sizes and isinstance(self.params.get(name), Untyped):
            self.declare_sizes([name], loc)
        for value in () if name in self.sizes else self._scope.values():
            if isinstance(value, Tensor) and not isinstance(value, View) and name in value.dims:
                self.declare_sizes(value.dims, loc)
        if name not in self.sizes:
            axes = [*self.sizes, *(n for n, p in self.params.items() if isinstance(p, Untyped))]
            raise UnknownAxis(name=name, workload=self.name, advice=did_you_mean(name, axes), loc=loc)
        return name

    def _axis_name(self, axis: DenseDyn) -> str:
        for name, value in self.captured.items():
            if value is axis:
                return name
        name = self._capture(axis)
        self.sizes[name] = w.SizeParam(name, axis.extent, self.loc)
        return name

    def open_loop(
        self, kind: str, name: str, extent: Expr, tile: int | None, loc: Location | None
    ) -> OpenLoop:
        """Begin a loop: what is recorded next is its body."""
        loop = OpenLoop(kind, self.unique(name), extent, tile, loc, [])
        self._block().append(loop)
        self._open.append(loop)
        return loop

    def close_loop(self, loop: OpenLoop) -> None:
        """End a loop.

        Raises:
            UnsupportedSyntax: a loop inside it was left by `break` or `return`.
        """
        if self._open.pop() is not loop:
            raise self._left_early()

    def finish(self) -> None:
        """End the recording.

        Raises:
            UnsupportedSyntax: a loop was left by `break` or `return`.
        """
        if self._open:
            self._open.append(self._open[-1])
            raise self._left_early()

    def _left_early(self) -> UnsupportedSyntax:
        inner = self._last_loop()
        return UnsupportedSyntax(
            construct="leaving a loop with `break` or `return`",
            where="workload",
            detail="the body of this loop did not reach its end",
            advice="a loop describes all its iterations: make it shorter with `P(n)` of a smaller extent",
            loc=inner.loc,
        )

    def _last_loop(self) -> OpenLoop:
        block = self.body
        found = None
        while loops := [node for node in block if isinstance(node, OpenLoop)]:
            found = loops[-1]
            block = found.body
        assert found is not None
        return found

    def _block(self) -> list[OpenLoop | OpenTask]:
        return self._open[-1].body if self._open else self.body

    # --- tasks ---

    def add_task(
        self,
        kernel: Kernel,
        keys: Sequence[object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        loc: Location | None,
    ) -> None:
        """Record a task.

        Raises:
            UnknownArgument: an argument too many or too few.
            BadOperand: coordinates that are no integers.
        """
        coordinates = tuple(self._key(kernel, key, loc) for key in keys)
        values = _bind(kernel, args, kwargs, loc)
        self._block().append(OpenTask(kernel, values, coordinates, loc))

    def _key(self, kernel: Kernel, key: object, loc: Location | None) -> Expr:
        if isinstance(key, Span):
            return Var(key.loop)
        expr = expression(key)
        if expr is None or expr.dtype is not i64:
            raise BadOperand(
                op=f"{kernel.name}[...]",
                expected="coordinates: loop variables, ranges or integers",
                found=_kind_of(key),
                loc=loc,
            )
        return expr


def _bind(
    kernel: Kernel, args: Sequence[object], kwargs: Mapping[str, object], loc: Location | None
) -> dict[str, object]:
    """Return the arguments of a task by parameter, in the kernel's order."""
    names = [p.name for p in kernel.params]

    def wrong(problem: str, detail: str, advice: str = "") -> UnknownArgument:
        return UnknownArgument(kernel=kernel.name, problem=problem, detail=detail, advice=advice, loc=loc)

    if len(args) > len(names):
        raise wrong(f"takes {len(names)} arguments", f"found {len(args)}")
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name == "after" and name not in names:
            raise NotYetSupported(
                feature="after=", detail="", advice="tasks are ordered by their data", loc=loc
            )
        if name not in names:
            raise wrong(f"has no parameter `{name}`", "unknown argument", did_you_mean(name, names))
        if name in values:
            raise wrong(f"gets `{name}` twice", "given by position and by name")
        values[name] = value
    for param in kernel.params:
        if param.name not in values:
            if param.default is MISSING:
                raise wrong(f"needs an argument `{param.name}`", "missing argument")
            values[param.name] = param.default
    return {name: values[name] for name in names}


def _variable_of(value: object, scope: Mapping[str, object]) -> str | None:
    """Return the name of a variable that holds `value`: in the workload's scope or where it is used now."""
    maps: list[Mapping[str, object]] = [scope]
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE_DIR):
            maps += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    return next((name for names in maps for name, found in names.items() if found is value), None)


def _kind_of(value: object) -> str:
    if isinstance(value, (int, float, str)):
        return repr(value)
    return "a truth value or float" if isinstance(value, Scalar) else type(value).__name__
