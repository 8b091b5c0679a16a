"""Repeat the bodies of kernels' loops whose bounds are constants.

    FOR %i, 0, 10, 1            ->    FOR %i, 0, 8, 4
      tstore %t, %y[%i ...]             tstore %t, %y[%i ...]
    ENDFOR                              tstore %t, %y[%i + 1 ...]   (and + 2, + 3)
                                      ENDFOR
                                      tstore %t, %y[8 ...]
                                      tstore %t, %y[9 ...]

Loops of at most `full` iterations go away altogether. A loop that would become larger than LIMIT statements
stays, and so does one whose body gives its variable another value. Loops of workloads stay: to walk one costs
nothing that repeating its tasks would save.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.ir import kernel as k
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import KernelRenaming
from pto_wsp.ir.scalar import Const, Expr, Var, add
from pto_wsp.support.record import replace

LIMIT = 1000


def unroll_loops(module: Module, factor: int = 4, full: int = 4) -> Module:
    """Return `module` with the loops of its kernels unrolled.

    Args:
        module: a verified module.
        factor: copies of a body in a loop that stays; below 2, such loops stay as they are.
        full: iterations up to which a loop goes away.
    """

    def statements(body: tuple[k.Stmt, ...]) -> Iterator[k.Stmt]:
        for stmt in body:
            found = k.rebuild(stmt, statements)
            yield from _unrolled(found, factor, full) if isinstance(found, k.For) else (found,)

    bodies = (None if kernel.body is None else tuple(statements(kernel.body)) for kernel in module.kernels)
    pairs = zip(module.kernels, bodies, strict=True)
    return module.with_kernels(replace(kernel, body=body) for kernel, body in pairs)


def _unrolled(loop: k.For, factor: int, full: int) -> tuple[k.Stmt, ...]:
    if not (isinstance(loop.start, Const) and isinstance(loop.stop, Const)):
        return (loop,)
    iterations = range(int(loop.start.value), int(loop.stop.value), loop.step)
    inside = [*k.walk_statements(loop.body)]
    if any(isinstance(stmt, k.Assign) and stmt.name == loop.var for stmt in inside):
        return (loop,)
    if len(iterations) <= full and len(inside) * len(iterations) <= LIMIT:
        return _copies(loop, [Const(i) for i in iterations])
    if factor < 2 or len(iterations) < factor or len(inside) * (2 * factor - 1) > LIMIT:
        return (loop,)
    whole = len(iterations) - len(iterations) % factor
    offsets = [add(Var(loop.var), Const(number * loop.step)) for number in range(factor)]
    stop = Const(int(loop.start.value) + whole * loop.step)
    main = replace(loop, stop=stop, step=loop.step * factor, body=_copies(loop, offsets))
    return (main, *_copies(loop, [Const(i) for i in iterations[whole:]]))


def _copies(loop: k.For, values: list[Const] | list[Expr]) -> tuple[k.Stmt, ...]:
    """Return the body once for each value of the loop variable."""
    copies = (KernelRenaming(values={loop.var: value}).statements(loop.body) for value in values)
    return tuple(stmt for copy in copies for stmt in copy)
