"""`.pto` text of IR: the dump.

The syntax is seed 004's (section 3), extended where our IR says more: regions are `start :+ extent`, `:` for
a whole dimension, `at(i)` for an index that drops its dimension, `rows(%indices, start :+ extent)` for a row
set and `merged` for the dimensions that it indexes together with its own; parameters carry their role;
workload loops carry their kind, and the user's name of their variable where that differs; what a task has
beside its arguments stands in braces behind it; the schedule stands behind the functions (ir/schedule.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.scalar import Const, Expr, Var, format_expr
from pto_wsp.ir.schedule import Policy, Schedule
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.text import TextWriter
from pto_wsp.types.dtype import b1
from pto_wsp.types.tile import ScalarType, TensorType, TileType, ViewType


def print_module(
    name: str,
    entry: str,
    kernels: Sequence[k.KernelFunction],
    workloads: Sequence[w.WorkloadFunction],
    schedule: Schedule,
) -> str:
    """Return a module as `.pto` text: the same text for equal modules."""
    out = TextWriter()
    out.line(f"// PTO Module: {name}")
    out.line("// Functions: " + ", ".join(f.name for f in (*kernels, *workloads)))
    if entry:
        out.line(f"// Entry: @{entry}")
    for function in kernels:
        out.line()
        _kernel(function, out)
    for workload in workloads:
        out.line()
        _workload(workload, out)
    _schedule(schedule, out)
    return str(out)


def print_policy(policy: Policy) -> str:
    """Return a policy without its directive: its name, its key and its count."""
    parts = [_expr(policy.key)] if policy.key is not None else []
    parts += [f"n = {policy.count}"] if policy.count else []
    return f"{policy.name}({', '.join(parts)})" if parts else policy.name


def _schedule(schedule: Schedule, out: TextWriter) -> None:
    chosen = [*schedule.chosen()]
    if not chosen:
        return
    out.line()
    out.line("SCHEDULE {")
    with out.indented():
        for policy in chosen:
            out.line(f"{policy.directive} = {print_policy(policy)}")
    out.line("}")


def print_kernel(function: k.KernelFunction) -> str:
    """Return one kernel as `.pto` text."""
    out = TextWriter()
    _kernel(function, out)
    return str(out)


def print_workload(function: w.WorkloadFunction) -> str:
    """Return one workload as `.pto` text."""
    out = TextWriter()
    _workload(function, out)
    return str(out)


def _kernel(function: k.KernelFunction, out: TextWriter) -> None:
    out.line("// Function Type: InCore (tile-level computation)")
    params = ", ".join(_kernel_param(p) for p in function.params)
    head = f"func @{function.name}({params})" + _kernel_attributes(function)
    if function.body is None and function.native is None:
        out.line(head)
        return
    out.line(head + " {")
    if function.native is not None:
        _native(function.native, out)
    else:
        _kernel_body(function, function.body or (), out)
    out.line("}")


def _kernel_attributes(function: k.KernelFunction) -> str:
    found = [] if function.unit == "any" else [f"unit = {function.unit}"]
    found += [] if function.block_dim == 1 else [f"block_dim = {function.block_dim}"]
    return f" attributes {{{', '.join(found)}}}" if found else ""


def _native(native: k.Native, out: TextWriter) -> None:
    """Write the C++ of a kernel: every line of its text follows a bar."""
    with out.indented():
        kind = f"unit @{native.entry}" if native.entry else "body "
        out.line(f"CPP {kind}({', '.join(native.order)})")
        for header in native.includes:
            out.line(f"INCLUDE {header}")
        if native.folder:
            out.line(f"FOLDER {quoted(native.folder)}")
        for name, value in native.constants:
            out.line(f"CONSTANT %{name} = {quoted(value) if isinstance(value, str) else value}")
        for line in native.source.split("\n"):
            out.line("|" + line)
        out.line("ENDCPP")


def _kernel_body(function: k.KernelFunction, body: Sequence[k.Stmt], out: TextWriter) -> None:
    types = dict(function.tiles)
    with out.indented():
        if function.tiles:
            out.line("// Tile Declarations")
        for name, tile in function.tiles:
            out.line(f"%{name} = alloc_tile : !pto.{tile}")
        if function.scalars:
            out.line("// Scalar Declarations")
        for name, scalar in function.scalars:
            out.line(f"%{name} = alloc_scalar : {scalar}")
        out.line("// Instructions")
        _statements(body, types, out)
        out.line("return")


def quoted(text: str) -> str:
    """Return a text between quotes, on one line."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + text.translate(str.maketrans(escapes)) + '"'


def _kernel_param(param: k.Param) -> str:
    match param.type:
        case ScalarType(dtype=dtype):
            return f"%{param.name}: {dtype}"
        case TileType(rows=rows, cols=cols, dtype=dtype):
            return f"%{param.name}: !pto.memref<gm,{rows}x{cols},{dtype}> {{{param.role}, tile}}"
        case ViewType(dims=None):
            return f"%{param.name}: !pto.memref<gm,...> {{{param.role}}}"
        case ViewType(dtype=dtype, dims=dims):
            shape = "x".join("?" if d is None else str(d) for d in dims or ())
            return f"%{param.name}: !pto.memref<gm,{shape},{dtype}> {{{param.role}}}"


def _statements(body: Sequence[k.Stmt], types: dict[str, TileType], out: TextWriter) -> None:
    for stmt in body:
        match stmt:
            case k.Load() | k.Store():
                out.line(_transfer(stmt, types))
            case k.Instr():
                out.line(_instruction(stmt, types))
            case k.Assign(name=name, value=value):
                out.line(f"%{name} = {_expr(value)} : {value.dtype}")
            case k.For(var=var, start=start, stop=stop, step=step):
                out.line(f"FOR %{var}:idx, {_expr(start)}:idx, {_expr(stop)}:idx, {step}:idx")
                _block(stmt.body, types, out)
                out.line("ENDFOR")
            case k.While(condition=condition):
                out.line("WHILE")
                out.line("DO " + _expr(condition))
                _block(stmt.body, types, out)
                out.line("ENDWHILE")
            case k.Call(kernel=kernel, args=args):
                values = ", ".join("%" + a if isinstance(a, str) else _expr(a) for a in args)
                out.line(f"CALL @{kernel}({values})")
            case k.If(condition=condition, then=then, other=other):
                out.line(f"IF {_expr(condition)}:u1")
                _block(then, types, out)
                if other:
                    out.line("ELSE")
                    _block(other, types, out)
                out.line("ENDIF")


def _block(body: Sequence[k.Stmt], types: dict[str, TileType], out: TextWriter) -> None:
    with out.indented():
        _statements(body, types, out)


def _transfer(stmt: k.Load | k.Store, types: dict[str, TileType]) -> str:
    place = _region(stmt.region)
    rows = "" if stmt.rows is None else f", %{stmt.rows}"
    if isinstance(stmt, k.Load):
        name = "mgather" if rows else "tload"
        return f"%{stmt.tile} = {name} {place}{rows} : !pto.{types[stmt.tile]}"
    return f"{'mscatter' if rows else 'tstore'} %{stmt.tile}, {place}{rows}"


def _instruction(instr: k.Instr, types: dict[str, TileType]) -> str:
    row = TABLE[instr.op]
    operands = [f"%{t}" for t in instr.tiles] + [_scalar(s) for s in instr.scalars]
    attrs = ", ".join(f"{key} = {_attr(value)}" for key, value in instr.attrs)
    text = f"%{instr.dst} = {row.mnemonic} " + ", ".join(operands)
    return text + (f" {{{attrs}}}" if attrs else "") + " : " + signature(row.form, instr, types)


def signature(form: Form, instr: k.Instr, types: Mapping[str, TileType]) -> str:
    """Return the types that an instruction is written with."""
    tiles = [f"!pto.{types[t]}" for t in instr.tiles]
    scalars = [str(s.dtype) for s in instr.scalars]
    result = f"!pto.{types[instr.dst]}"
    match form:
        case Form.BINARY | Form.UNARY:
            return result
        case Form.TILE_SCALAR | Form.FILL:
            return ", ".join(tiles + scalars + ([result] if form is Form.FILL else []))
        case Form.MATMUL | Form.MATMUL_ACC:
            return f"({', '.join(tiles)}) -> {result}"
        case _:
            return f"{', '.join(tiles + scalars)} -> {result}"


def _scalar(expr: Expr) -> str:
    match expr:
        case Var(name=name):
            return "%" + name
        case Const(value=value) if expr.dtype is not b1 and math.isfinite(value):
            return "%" + format_expr(expr)
        case _:
            return f"({_expr(expr)})"


def _attr(value: k.AttrValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else _expr(value)


def _expr(expr: Expr) -> str:
    return format_expr(expr, "%")


def _region(region: Region) -> str:
    return f"%{region.tensor}[" + ", ".join(_dim(d) for d in region.dims) + "]"


def _dim(dim: DimSelect) -> str:
    match dim:
        case Full():
            return ":"
        case Index(at=at):
            return f"at({_expr(at)})"
        case TileRange(loop=loop):
            return f"%{loop}"
        case Range(start=start, extent=extent):
            return f"{_expr(start)} :+ {_expr(extent)}"
        case Rows(indices=indices, start=start, extent=extent):
            return f"rows(%{indices}, {_expr(start)} :+ {_expr(extent)})"
        case Merged():
            return "merged"


def _workload(function: w.WorkloadFunction, out: TextWriter) -> None:
    out.line("// Function Type: Orchestration (control flow only)")
    out.line(f"func @{function.name}({', '.join(_workload_param(p) for p in function.params)}) {{")
    with out.indented():
        _nodes(function.body, out)
        out.line("return")
    out.line("}")


def _workload_param(param: w.WorkloadParam) -> str:
    match param:
        case w.TensorParam(name=name, type=TensorType(dtype=dtype, dims=dims)):
            shape = "x".join(f'"{d}"' if isinstance(d, str) else str(d) for d in dims)
            flags = [
                n for n, is_set in (("local", param.is_local), ("distinct", param.is_distinct)) if is_set
            ]
            return f"%{name}: !pto.memref<gm,{shape},{dtype}>" + (f" {{{', '.join(flags)}}}" if flags else "")
        case w.SizeParam(name=name, default=default, value=value):
            given = "" if default is None else f" = {default}"
            return f"%{name}: index{given}" + ("" if value is None else f" := {_expr(value)}")
        case w.RaggedParam(name=name, outer=outer):
            return f"%{name}: ragged<%{outer}>"
        case w.SparseParam(name=name, outer=outer):
            return f"%{name}: sparse<%{outer}>"
        case w.ScalarParam(name=name, type=dtype, value=value):
            return f"%{name}: {dtype}" + ("" if value is None else f" := {_expr(value)}")


def _nodes(body: Sequence[w.Node], out: TextWriter) -> None:
    for node in body:
        match node:
            case w.Loop(kind=kind, var=var, extent=extent, tile=tile):
                step = "1" if tile is None else str(tile)
                attrs = kind + ("" if tile is None else ", tiles")
                attrs += f", name = {node.name}" if node.name else ""
                head = f"FOR %{var}:idx, 0:idx, {_expr(extent)}:idx, {step}:idx"
                out.line(f"{head}{_ranges(node)} {{{attrs}}}")
                with out.indented():
                    _nodes(node.body, out)
                out.line("ENDFOR")
            case w.Task():
                out.line(_task(node))
            case w.Call(workload=workload, args=args):
                out.line(f"CALL @{workload}({_arguments(args)})")
            case w.Cond():
                _condition(node, out)
            case w.Set(name=name, value=value):
                out.line(f"%{name} = {_expr(value)} : {value.dtype}")
            case w.Refuse(tier=tier, bounds=bounds, size=size):
                out.line(f"REFUSE {json.dumps(tier)}, {_expr(size)}:idx {{bounds = {list(bounds)}}}")


def _ranges(loop: w.Loop) -> str:
    levels = ",".join(f"{block}:{rows}" for block, rows in loop.tile_levels)
    found = "" if loop.max_range is None else f" max_range={loop.max_range}"
    found += "" if loop.min_range is None else f" min_range={loop.min_range}"
    return found + (f" tile_levels={{{levels}}}" if levels else "")


def _condition(node: w.Cond, out: TextWriter) -> None:
    out.line(f"IF {_expr(node.condition)}:u1")
    with out.indented():
        _nodes(node.then, out)
    if node.other:
        out.line("ELSE")
        with out.indented():
            _nodes(node.other, out)
    out.line("ENDIF")


def _arguments(args: Sequence[Region | Expr]) -> str:
    return ", ".join(_region(a) if isinstance(a, Region) else _expr(a) for a in args)


def _task(task: w.Task) -> str:
    coordinates = f"[{', '.join(_expr(key) for key in task.keys)}]" if task.keys else ""
    attrs = [f"label = {task.label}"] if task.label else []
    attrs += [f"after = [{', '.join(task.after)}]"] if task.after else []
    attrs += [f"workspace = {_expr(task.workspace)}"] if task.workspace is not None else []
    attrs += [f"cost = {_expr(task.cost)}"] if task.cost is not None else []
    return f"CALL @{task.kernel}{coordinates}({_arguments(task.args)})" + (
        f" {{{', '.join(attrs)}}}" if attrs else ""
    )
