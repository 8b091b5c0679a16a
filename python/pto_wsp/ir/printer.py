"""`.pto` text of IR: the dump.

docs/pto_text.md has the grammar. A region selects, per dimension, `start :+ extent`, `:` for all of it,
`at(i)` for an index that drops the dimension, `rows(%indices, start :+ extent)` for a row set, or `merged`
for a dimension that the row set indexes together with its own. Parameters have roles, loops of workloads
have kinds, and tasks have attributes in braces. The schedule follows the functions (ir/schedule.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel_printer import write_kernel
from pto_wsp.ir.region_text import expr_text, quoted, region_text
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.ir.schedule import Bounds, Count, Directive, Directives, Key, Keys, Stage, Stages
from pto_wsp.support.text import TextWriter
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.space import Space
from pto_wsp.types.tile import TensorType


def print_module(
    name: str,
    entry: str,
    kernels: Sequence[k.KernelFunction],
    workloads: Sequence[w.WorkloadFunction],
    schedule: Directives,
) -> str:
    """Return a module as `.pto` text: the same text for equal modules."""
    out = TextWriter()
    out.line(f"// PTO Module: {name}")
    out.line("// Functions: " + ", ".join(f.name for f in (*kernels, *workloads)))
    if entry:
        out.line(f"// Entry: @{entry}")
    for function in kernels:
        out.line()
        write_kernel(function, out)
    for workload in workloads:
        out.line()
        _workload(workload, out)
    _schedule(schedule, out)
    return str(out)


def print_directive(directive: Directive) -> str:
    """Return a directive as its line in a schedule says it."""
    return f"{directive.kind} = {print_policy(directive)}"


def print_policy(directive: Directive) -> str:
    """Return a directive without its kind: its name and its arguments."""
    arguments: list[str] = []
    for parameter in directive.policy.takes:
        value = getattr(directive, parameter.field)
        match parameter:
            case Key():
                arguments.append(expr_text(value))
            case Keys():
                arguments += map(expr_text, value)
            case Count():
                arguments += [f"n = {value}"] if value else []
            case Stages():
                arguments += map(_stage, value)
            case Bounds():
                arguments.append(f"at = {list(value)}")
    return f"{directive.name}({', '.join(arguments)})" if arguments else directive.name


def _stage(stage: Stage) -> str:
    kernels = ", ".join(f"%kernel.{name}" for name in stage.kernels)
    return f"stage({kernels}, n = {stage.cores})"


def _schedule(schedule: Directives, out: TextWriter) -> None:
    if schedule.directives:
        out.line()
        out.line("SCHEDULE {")
        with out.indented():
            for directive in schedule:
                out.line(print_directive(directive))
        out.line("}")


def print_kernel(function: k.KernelFunction) -> str:
    """Return one kernel as `.pto` text."""
    out = TextWriter()
    write_kernel(function, out)
    return str(out)


def print_workload(function: w.WorkloadFunction) -> str:
    """Return one workload as `.pto` text."""
    out = TextWriter()
    _workload(function, out)
    return str(out)


def _workload(function: w.WorkloadFunction, out: TextWriter) -> None:
    out.line("// Function Type: Orchestration (control flow only)")
    out.line(f"func @{function.name}({', '.join(_workload_param(p) for p in function.params)}) {{")
    with out.indented():
        _nodes(function.body, out)
        out.line("return")
    out.line("}")


def _workload_param(param: w.WorkloadParam) -> str:
    match param:
        case w.TensorParam(name=name, type=TensorType(dtype=dtype, dims=dims, space=space)):
            shape = "x".join(f'"{d}"' if isinstance(d, str) else str(d) for d in dims)
            flags = _tensor_flags(param)
            return f"%{name}: !pto.memref<{(space or Space.GM).value},{shape},{dtype}>" + (
                f" {{{', '.join(flags)}}}" if flags else ""
            )
        case w.SizeParam(name=name, default=default, value=value):
            return f"%{name}: index" + _given(default, i64, value)
        case w.RaggedParam(name=name, outer=outer):
            return f"%{name}: ragged<%{outer}>"
        case w.SparseParam(name=name, outer=outer):
            return f"%{name}: sparse<%{outer}>"
        case w.ScalarParam(name=name, type=type, value=value, default=default):
            return f"%{name}: {type}" + _given(default, type.dtype, value)


def _tensor_flags(param: w.TensorParam) -> list[str]:
    flags = [name for name, is_set in (("local", param.is_local), ("distinct", param.is_distinct)) if is_set]
    flags += [] if param.columns is None else [f"columns = {param.columns}"]
    if param.channel is not None:
        latency = param.channel.latency
        cycles = str(latency) if isinstance(latency, int) else f"%{latency}"
        flags += [f"depth = {param.channel.depth}", f"latency = {cycles}"]
        flags += [f"scalars = [{', '.join(param.channel.scalars)}]"] if param.channel.scalars else []
        flags += [f"merge = {param.channel.merge}"] if param.channel.merge != w.TURNS else []
    return flags if param.axis is None else [*flags, f"offsets = %{param.axis}"]


def _given(default: int | float | None, dtype: DType, value: Expr | None) -> str:
    """Return the default of a size or scalar, or what it follows from."""
    text = "" if default is None else f" = {expr_text(Const(default, dtype))}"
    return text + ("" if value is None else f" := {expr_text(value)}")


def _nodes(body: Sequence[w.Node], out: TextWriter) -> None:
    for node in body:
        match node:
            case w.Loop(kind=kind, var=var, extent=extent, tile=tile):
                step = "1" if tile is None else str(tile)
                attrs = kind + ("" if tile is None else ", tiles")
                attrs += f", name = {node.name}" if node.name else ""
                head = f"FOR %{var}:idx, 0:idx, {expr_text(extent)}:idx, {step}:idx"
                out.line(f"{head}{_ranges(node)} {{{attrs}}}")
                with out.indented():
                    _nodes(node.body, out)
                out.line("ENDFOR")
            case w.Task():
                out.line(_task(node))
            case w.WorkloadCall(workload=workload, args=args):
                out.line(f"CALL @{workload}({_arguments(args)})")
            case w.Cond():
                _condition(node, out)
            case w.Set(name=name, value=value):
                out.line(f"{expr_text(w.assigned(name))} = {expr_text(value)} : {value.dtype}")
            case w.Process() | w.Send() | w.Receive() | w.Delay():
                _network_node(node, out)
            case w.Refuse(assumption=assumption) if assumption:
                out.line(f"REFUSE assumption {quoted(assumption)}")
            case w.Refuse(tier=tier, bounds=bounds, size=size):
                out.line(f"REFUSE {quoted(tier)}, {expr_text(size)}:idx {{bounds = {list(bounds)}}}")
            case _:
                assert_never(node)


_LOOP_WORDS = {w.PARALLEL: "P", w.SEQUENTIAL: "P.seq", w.RANGE: "P.range"}


def loop_text(loop: w.Loop) -> str:
    """Return a loop as a user writes it: `b in P(batch)`, `r in P.tiles(n, 16)`."""
    extent = expr_text(loop.extent).replace("%", "")
    if loop.tile is None:
        return f"{loop.called} in {_LOOP_WORDS[loop.kind]}({extent})"
    order = "" if loop.kind == w.PARALLEL else f', order="{loop.kind}"'
    return f"{loop.called} in P.tiles({extent}, {loop.tile}{order})"


def _ranges(loop: w.Loop) -> str:
    levels = ",".join(f"{block}:{rows}" for block, rows in loop.tile_levels)
    found = "" if loop.max_range is None else f" max_range={loop.max_range}"
    found += "" if loop.min_range is None else f" min_range={loop.min_range}"
    return found + (f" tile_levels={{{levels}}}" if levels else "")


def _network_node(node: w.NetworkNode, out: TextWriter) -> None:
    match node:
        case w.Delay(cycles=cycles):
            out.line(f"WAIT {expr_text(cycles)}")
            return
        case w.Process(name=name):
            word, head = "PROCESS", f"@{name}"
        case w.Send(channel=channel, slot=slot, index=index, scalars=scalars):
            word, head = "SEND", f"%{channel}({', '.join(map(expr_text, scalars))}) -> %{slot}, %{index}"
        case w.Receive(channel=channel, slot=slot, index=index, scalars=scalars):
            names = ", ".join(f"%{name}" for name in (slot, index, *scalars))
            word, head = "RECEIVE", f"%{channel} -> {names}" + (" {ends_loop}" if node.ends_loop else "")
        case _:
            assert_never(node)
    out.line(f"{word} {head}")
    with out.indented():
        _nodes(node.body, out)
    out.line(f"END{word}")


def _condition(node: w.Cond, out: TextWriter) -> None:
    out.line(f"IF {expr_text(node.condition)}:u1")
    with out.indented():
        _nodes(node.then, out)
    if node.other:
        out.line("ELSE")
        with out.indented():
            _nodes(node.other, out)
    out.line("ENDIF")


def _arguments(args: Sequence[Region | Expr]) -> str:
    return ", ".join(region_text(a) if isinstance(a, Region) else expr_text(a) for a in args)


def _task(task: w.Task) -> str:
    coordinates = f"[{', '.join(expr_text(key) for key in task.keys)}]" if task.keys else ""
    attrs = [f"label = {task.label}"] if task.label else []
    attrs += [f"after = [{', '.join(task.after)}]"] if task.after else []
    attrs += [f"workspace = {expr_text(task.workspace)}"] if task.workspace is not None else []
    attrs += [f"cost = {expr_text(task.cost)}"] if task.cost is not None else []
    return f"CALL @{task.kernel}{coordinates}({_arguments(task.args)})" + (
        f" {{{', '.join(attrs)}}}" if attrs else ""
    )
