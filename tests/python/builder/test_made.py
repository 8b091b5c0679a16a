"""What the run makes is never read before: random Orchestrations, walked element by element, and run."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from pto_wsp import ElementType, PTOFunctionBuilder, PTOModule
from pto_wsp.builder.steps import Argument
from pto_wsp.errors import UnknownName
from pto_wsp.interp.workload import expand
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.kernel import IN, OUT, KernelFunction
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.builder.test_orchestration import add_kernels
from tests.slow import RUNS_QUICK

ROWS = 64


KERNELS = PTOModule("kernels")
add_kernels(KERNELS)


def base() -> PTOModule:
    module = PTOModule("m")
    for function in KERNELS.get_all_functions():
        module.import_function(function)
    return module


def random_orchestration(rng: Draw, module: PTOModule) -> w.WorkloadFunction:
    builder = PTOFunctionBuilder("f", module).not_in_core().memref("x").scalar("n", ElementType.I32)
    _steps(rng, builder, [], 3)
    function = builder.build()
    assert isinstance(function, w.WorkloadFunction)
    return function


def _steps(rng: Draw, builder: PTOFunctionBuilder, loops: list[str], depth: int) -> None:
    for _ in range(rng.randint(1, 3)):
        choice = rng.random()
        if depth and choice < 0.45:
            var = f"i{len(loops)}"
            builder.for_loop(var, 0, rng.choice(["n", "n", "n", "2", "n + 1"]))
            _steps(rng, builder, [*loops, var], depth - 1)
            builder.end_for()
        elif depth and choice < 0.55:
            builder.if_then(rng.choice(["n > 1", *(f"{v} == 0" for v in loops)]))
            _steps(rng, builder, loops, depth - 1)
            if rng.random() < 0.5:
                builder.else_block()
                _steps(rng, builder, loops, depth - 1)
            builder.endif()
        else:
            row = rng.choice(["0", "1", *loops, *loops, *(f"{v} + 1" for v in loops[-1:]), "n"])
            made, kept = ("t", row, 0), ("x", 0, 0)
            is_read = rng.random() < 0.5
            places: dict[str, Argument] = {"x": made if is_read else kept, "y": kept if is_read else made}
            builder.call("scale", {**places, "factor": 0.5 + depth})


def reads_are_made(function: w.WorkloadFunction, module: PTOModule, n: int) -> bool:
    written = np.zeros(ROWS, bool)
    for task in expand(function, {"n": n}):
        kernel = module.get_function(task.node.kernel)
        assert isinstance(kernel, KernelFunction)
        pairs = [(p, a) for p, a in zip(kernel.params, task.node.args, strict=True) if isinstance(a, Region)]
        for is_store in (False, True):
            for param, region in pairs:
                if region.tensor != "t" or param.role == (IN if is_store else OUT):
                    continue
                rows = region.dims[0]
                assert isinstance(rows, Range) and region.dims[1] == Full()
                start, extent = (int(evaluate(e, task.scope)) for e in (rows.start, rows.extent))
                part = slice(start, start + extent)
                if is_store:
                    written[part] = True
                elif not written[part].all():
                    return False
    return True


def test_random_orchestrations_read_what_is_made() -> None:
    accepted = refused = reading = 0
    x = np.linspace(1, 2, ROWS * 8, dtype=np.float32).reshape(ROWS, 8)

    @tries(400)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        nonlocal accepted, refused, reading
        module = base()
        try:
            function = random_orchestration(draw, module)
        except UnknownName:
            refused += 1
            return
        accepted += 1
        tasks = [*w.tasks(function.body)]
        is_reading = any(isinstance(t.args[0], Region) and t.args[0].tensor == "t" for t in tasks)
        reading += is_reading
        if is_reading and reading <= 10:
            module.set_entry("f")
            found = [x.copy(), x.copy()]
            for target, array in zip(("interp", "cpu"), found, strict=True):
                program = module.compile(target)
                for n in range(3):
                    program(x=array, n=n)
            assert np.array_equal(*found), str(module)
        for n in range(4):
            assert reads_are_made(function, module, n), str(module)

    check()
    assert RUNS_QUICK or min(accepted, refused, reading) > 0, (accepted, refused, reading)
