"""From the steps of an Orchestration function to a workload.

A scalar that nothing assigns is a parameter; one that is computed once, outside of loops and branches, is a
name for its value; others are variables. A tensor of a call that is not declared is made by the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from pto_wsp.analysis.unwritten_reads import first_unwritten_read
from pto_wsp.builder.callees import Recorded, called, in_order, wrong_kind
from pto_wsp.builder.in_core import condition_of
from pto_wsp.builder.memrefs import require_integers
from pto_wsp.builder.names import scalar_dtype
from pto_wsp.builder.scalars import ScalarReader, fitted
from pto_wsp.builder.steps import (
    METHODS,
    Argument,
    CallStep,
    ChannelDeclaration,
    CheckStep,
    IfStep,
    ImportStep,
    LeaveStep,
    LoopStep,
    Memref,
    Plain,
    PrintStep,
    ProcessStep,
    ReceiveStep,
    ReturnStep,
    ScalarDeclaration,
    ScalarStep,
    SendStep,
    StepBlock,
    TileDeclaration,
    TileStep,
    Transfer,
    Tree,
    WaitStep,
    WhileStep,
    assigned_once,
    assignments,
)
from pto_wsp.builder.tensors import Tensors, read_place
from pto_wsp.errors import BadOperand, NameClash, NotYetSupported, UnknownName, did_you_mean
from pto_wsp.ir import scalar as ir
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Index, Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Element, Expr, Var, walk
from pto_wsp.location import Location
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType, b1, f32, i64
from pto_wsp.types.tile import ScalarType, TensorType


def make_workload(function: Recorded) -> w.WorkloadFunction:
    """Return the workload that the steps of a function describe.

    Raises:
        FrontendError: a step has no meaning in it.
    """
    return _Orchestration(function).function()


class _Orchestration:
    def __init__(self, function: Recorded) -> None:
        self.name, self.functions, self.loc = function.name, function.functions, function.loc
        self.declared, self.tree = declared, tree = function.declared, function.tree
        self.fresh = Fresh({*declared, *(step.dst for step in assignments(tree))})
        self.assigned = frozenset(step.dst for step in assignments(tree))
        self.constants = assigned_once(tree)
        memrefs = {n: d for n, d in declared.items() if isinstance(d, Memref)}
        self.tensors = Tensors(self.name, memrefs, self.fresh.taken)
        self.params: dict[str, w.ScalarParam] = {}
        self.values: dict[str, Expr] = {}
        self.open: dict[str, str] = {}
        self.tokens: dict[str, Region] = {}
        self.reader = ScalarReader(self)
        for item, declaration in declared.items():
            if isinstance(declaration, TileDeclaration):
                raise wrong_kind("tile", self.name, "InCore", declaration.loc)
            if isinstance(declaration, ScalarDeclaration) and item not in self.assigned:
                dtype = scalar_dtype(declaration.dtype)
                assert dtype is not None
                self.values[item] = Var(item, dtype)
                self.params[item] = w.ScalarParam(item, ScalarType(dtype), declaration.loc)

    def function(self) -> w.WorkloadFunction:
        body = self.steps(self.tree)
        kernels = {f.name: f for f in self.functions.values() if isinstance(f, KernelFunction)}
        unwritten = first_unwritten_read(body, kernels, self.tensors.local)
        if unwritten is not None:
            raise UnknownName(
                name=unwritten.tensor,
                where="what comes before this task, not for all that it reads",
                advice="declare it with `.memref(...)`: then a call gives its array",
                loc=unwritten.loc,
            )
        params: list[w.WorkloadParam] = []
        for name, declaration in self.declared.items():
            if isinstance(declaration, Memref):
                params.append(self.tensors.param(name))
            elif isinstance(declaration, ChannelDeclaration):
                params.append(ring_of(name, declaration))
            elif name in self.params:
                params.append(self.params[name])
        params += [self.tensors.param(name) for name in self.tensors.intermediates]
        params += self.tensors.sizes()
        return self.tensors.resolved(w.WorkloadFunction(self.name, tuple(params), body, self.loc))

    # --- names ---

    def scalar(self, name: str, loc: Location | None) -> Expr:
        """Return the value of a name in an expression."""
        if name in self.values:
            return self.values[name]
        if name in self.assigned:
            raise UnknownName(
                name=name,
                where="what comes before on every path",
                advice="assign it first",
                loc=loc,
            )
        advice = did_you_mean(name, self.values)
        raise UnknownName(name=name, where=f"`{self.name}` as a scalar", advice=advice, loc=loc)

    def element(self, name: str, indices: tuple[Expr, ...], op: str, loc: Location | None) -> Expr:
        """Return an element of a tensor of integers, which is read when the walk comes to it."""
        if (token := self.tokens.get(name)) is not None:
            require_integers(name, self.tensors.memref(name), indices, op, loc)
            return Element(token.tensor, (*token.expressions, *indices), loc)
        memref = self.tensors.given(name, op, loc)
        require_integers(name, memref, indices, op, loc)
        return Element(name, indices, loc)

    def extent(self, name: str, dim: int, op: str, loc: Location | None) -> Expr:
        """Refuse the size of a tensor: it follows from the calls, which are read first."""
        raise wrong_kind(f"dim` in `{op}", self.name, "InCore", loc or self.loc)

    # --- steps ---

    def steps(self, tree: Tree) -> tuple[w.Node, ...]:
        found: list[w.Node] = []
        for step in tree:
            if isinstance(step, StepBlock):
                found.append(self.block(step))
            else:
                found += self.step(step)
        return tuple(found)

    def step(self, step: Plain) -> list[w.Node]:
        match step:
            case ScalarStep():
                return self.assign(step)
            case CallStep():
                return [self.call(step)]
            case WaitStep(cycles=cycles, loc=loc):
                return [w.Delay(self.reader.integer(cycles, "wait", loc), loc)]
            case Transfer(method=method, loc=loc) | TileStep(method=method, loc=loc):
                raise wrong_kind(method, self.name, "InCore", loc)
            case PrintStep(loc=loc):
                raise wrong_kind("print", self.name, "InCore", loc)
            case CheckStep(loc=loc):
                raise wrong_kind("check", self.name, "InCore", loc)
            case ImportStep() | ReturnStep():
                return []
            case LeaveStep():
                raise AssertionError("early exits are removed before")
            case _:
                assert_never(step)

    def block(self, block: StepBlock) -> w.Node:
        match block.opening:
            case LoopStep() as step:
                return self.loop(step, block.body)
            case IfStep() as step:
                condition = condition_of(self.reader, step)
                before = dict(self.values)
                then, after = self.steps(block.body), self.values
                self.values = before
                other = self.steps(block.other)
                self.values = {n: v for n, v in self.values.items() if n in after}
                return w.Cond(condition, then, other, step.loc)
            case WhileStep(loc=loc):
                raise wrong_kind("while_loop", self.name, "InCore", loc)
            case ProcessStep(name=name, loc=loc):
                return w.Process(name, self.apart(block.body), loc)
            case SendStep() as step:
                return self.send(step, block.body)
            case ReceiveStep() as step:
                return self.receive(step, block.body)

    def apart(self, body: Tree, **values: Expr) -> tuple[w.Node, ...]:
        """Return a block in which `values` are known, and after which its assignments are not."""
        before = dict(self.values)
        self.values |= values
        found = self.steps(body)
        self.values = before
        return found

    # --- networks ---

    def channel(self, name: str, loc: Location) -> ChannelDeclaration:
        declaration = self.declared.get(name)
        if isinstance(declaration, ChannelDeclaration):
            return declaration
        channels = [n for n, d in self.declared.items() if isinstance(d, ChannelDeclaration)]
        advice = did_you_mean(name, channels) or "declare it with `.channel(...)`"
        raise UnknownName(name=name, where=f"`{self.name}` as a channel", advice=advice, loc=loc)

    def send(self, step: SendStep, body: Tree) -> w.Send:
        ring = self.channel(step.channel, step.loc).ring
        require_scalars(step, ring)
        scalars = tuple(self.reader.integer(step.scalars[n], "send", step.loc) for n in ring.scalars)
        slot, index, inner = self.token(step, body, {})
        return w.Send(step.channel, slot, index, scalars, inner, step.loc)

    def receive(self, step: ReceiveStep, body: Tree) -> w.Loop:
        ring, is_endless = self.channel(step.channel, step.loc).ring, step.count is None
        require_scalars(step, ring)
        count: Expr = Const(w.UNTIL_CLOSED)
        if step.count is not None:
            count = ir.binary("max", self.reader.integer(step.count, "receive", step.loc), Const(0), step.loc)
        names = {name: self.fresh.name(step.scalars.get(name, name)) for name in ring.scalars}
        known = {new: Var(names[name]) for name, new in step.scalars.items()}
        given = [name for name in (step.token, step.index, *step.scalars.values()) if name]
        if len({*given}) < len(given):
            raise NameClash(kind="names of a token", name=", ".join(given), loc=step.loc)
        loop = self.fresh.name(step.token or "token")
        slot, index, inner = self.token(step, body, known)
        receive = w.Receive(step.channel, slot, index, tuple(names.values()), is_endless, inner, step.loc)
        return w.Loop(w.RANGE, loop, count, None, (receive,), step.loc)

    def token(
        self, step: SendStep | ReceiveStep, body: Tree, values: Mapping[str, Expr]
    ) -> tuple[str, str, tuple[w.Node, ...]]:
        """Return the variables of the buffer and the number of a token, and the nodes of its block."""
        declaration, token = self.channel(step.channel, step.loc), step.token
        for name in filter(None, (token, step.index, *values)):
            if name in self.values or name in self.declared or name in self.tokens:
                raise NameClash(kind="things in a function", name=name, loc=step.loc)
        slot, index = self.fresh.name(f"{step.channel}.slot"), self.fresh.name(f"{step.channel}.index")
        values = {**values, **({step.index: Var(index)} if step.index else {})}
        if not token:
            return slot, index, self.apart(body, **values)
        if declaration.shape is None:
            expected, found = f"a channel with buffers for `{token}`", f"`{step.channel}`, which has none"
            raise BadOperand(op=METHODS[type(step)], expected=expected, found=found, loc=step.loc)
        self.tokens[token] = Region(step.channel, (Index(Var(slot)),))
        with self.tensors.knowing(token, Memref(declaration.dtype, declaration.shape, True, step.loc)):
            inner = self.apart(body, **values)
        del self.tokens[token]
        return slot, index, inner

    def loop(self, step: LoopStep, body: Tree) -> w.Loop:
        if step.tile is not None:
            raise wrong_kind("tile_loop", self.name, "InCore", step.loc)
        lower, upper = (self.reader.integer(e, "for_loop", step.loc) for e in (step.lower, step.upper))
        extent = upper
        if lower != Const(0):
            extent = ir.binary("max", ir.binary("sub", upper, lower, step.loc), Const(0), step.loc)
        if step.step != 1:
            extent = ir.ceildiv(extent, step.step, step.loc)
        if step.var in self.values or step.var in self.declared:
            raise NameClash(kind="things in a function", name=step.var, loc=step.loc)
        var = self.fresh.name(step.var)
        before = dict(self.values)
        self.values = {
            **before,
            step.var: ir.add(lower, ir.mul(Var(var), Const(step.step), step.loc), step.loc),
        }
        self.open[step.var] = var
        inner = self.steps(body)
        del self.open[step.var]
        self.values = before
        return w.Loop(
            step.kind,
            var,
            extent,
            None,
            inner,
            step.loc,
            max_range=step.expansion.max_range,
            min_range=step.expansion.min_range,
            tile_levels=step.expansion.tile_levels,
            name=step.var if var != step.var else "",
            first=int(lower.value) if isinstance(lower, Const) else ir.format_expr(lower),
            step=step.step,
        )

    def assign(self, step: ScalarStep) -> list[w.Node]:
        name, loc = step.dst, step.loc
        declaration = self.declared.get(name)
        if isinstance(declaration, Memref) or name in self.open:
            raise NameClash(kind="things in a function", name=name, loc=loc)
        value = self.reader.compute(step.op, step.operands, loc)
        dtype = value.dtype
        if isinstance(declaration, ScalarDeclaration):
            dtype = scalar_dtype(declaration.dtype) or dtype
        value = fitted(value, dtype, name, loc)
        if name in self.constants and step.op != "mov" and self.is_fixed(value):
            self.values[name] = value
            return []
        if dtype is f32:
            detail, advice = (
                "computed while the program runs",
                "assign it once, outside of loops and branches",
            )
            feature = f"the variable `{name}` of type f32"
            raise NotYetSupported(feature=feature, detail=detail, advice=advice, loc=loc)
        self.values[name] = _variable(name, dtype, loc)
        return [w.Set(name, value, loc)]

    def is_fixed(self, value: Expr) -> bool:
        """Whether a value is the same in the whole run: it reads no variables, and no elements."""
        parts = [*walk(value)]
        variables = (part.name for part in parts if isinstance(part, Var))
        return all(name in self.params for name in variables) and not any(
            isinstance(part, Element) for part in parts
        )

    # --- calls ---

    def call(self, step: CallStep) -> w.Node:
        callee = called(step, self.functions)
        if isinstance(callee, w.WorkloadFunction):
            names = [p.name for p in callee.open_params]
            args = [self.passed(callee, *pair, step.loc) for pair in in_order(step, names)]
            return w.WorkloadCall(callee.name, tuple(args), step.loc)
        names = [p.name for p in callee.params]
        args = [self.argument(callee, *pair, step.loc) for pair in in_order(step, names)]
        return w.Task(callee.name, tuple(args), tuple(map(Var, self.open.values())), step.loc)

    def argument(self, callee: KernelFunction, name: str, value: Argument, loc: Location) -> Region | Expr:
        param = callee.param(name)
        if isinstance(param.type, ScalarType):
            return self.scalar_argument(name, value, param.type.dtype, loc)
        region = self.tensors.region(callee.name, param, read_place(self.reader, name, value, loc), loc)
        token = self.tokens.get(region.tensor)
        return region if token is None else replace(token, dims=(*token.dims, *region.dims), loc=region.loc)

    def passed(self, callee: w.WorkloadFunction, name: str, value: Argument, loc: Location) -> Region | Expr:
        param = next(p for p in callee.open_params if p.name == name)
        match param:
            case w.TensorParam():
                place = read_place(self.reader, name, value, loc)
                return self.tensors.whole(callee.name, param, place, loc)
            case w.ScalarParam(type=ScalarType(dtype=dtype)):
                return self.scalar_argument(name, value, dtype, loc)
            case w.SizeParam():
                return self.scalar_argument(name, value, i64, loc)
            case _:
                expected, found = "a workload of tensors, sizes and scalars", f"`{name}`, an axis with rows"
                raise BadOperand(op="call", expected=expected, found=found, loc=loc)

    def scalar_argument(self, name: str, value: Argument, dtype: DType, loc: Location) -> Expr:
        if isinstance(value, tuple):
            expected = f"for `{name}`, a number or the name of a scalar"
            raise BadOperand(op="call", expected=expected, found="a place in a tensor", loc=loc)
        return fitted(self.reader.read(value, "call", loc), dtype, name, loc)


def require_scalars(step: SendStep | ReceiveStep, ring: w.Ring) -> None:
    """Refuse scalars that a channel does not have, and a send without one that it has."""
    unknown = next((name for name in step.scalars if name not in ring.scalars), None)
    missing = next((name for name in ring.scalars if name not in step.scalars), None)
    if unknown is None and (missing is None or isinstance(step, ReceiveStep)):
        return
    expected = f"the scalars of channel `{step.channel}`: {', '.join(ring.scalars) or 'none'}"
    found = f"`{unknown}`" if unknown is not None else f"no `{missing}`"
    raise BadOperand(op=METHODS[type(step)], expected=expected, found=found, loc=step.loc)


def ring_of(name: str, declaration: ChannelDeclaration) -> w.TensorParam:
    """Return the tensor that holds the buffers of a channel."""
    dtype = i64 if declaration.shape is None else declaration.dtype
    kind = TensorType(dtype, (declaration.ring.buffers, *(declaration.shape or ())))
    return w.TensorParam(name, kind, declaration.loc, is_local=True, channel=declaration.ring)


def _variable(name: str, dtype: DType, loc: Location) -> Expr:
    """Return the value of a variable: truth values are kept as numbers."""
    value = Var(name, i64, loc)
    return ir.Binary("ne", value, Const(0), loc) if dtype is b1 else value
