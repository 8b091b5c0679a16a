"""From a traced workload, or a module, to a program: what `compile` methods reach through their hook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp.device.model import Device
from pto_wsp.errors import NameClash, WrongValue
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.lang.compiling import set_compile_hook
from pto_wsp.lang.workload.build_module import Traced
from pto_wsp.location import argument_location, caller_location
from pto_wsp.prove.finding import Proof
from pto_wsp.runtime.binding import RUN_OPTIONS
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.proved import require_proof_of
from pto_wsp.runtime.stated import stated_arrays
from pto_wsp.support.garbage import collection_paused
from pto_wsp.targets import registry
from pto_wsp.targets.base import Target

EXPANDERS = ("bytecode", "source")
"""What can expand a workload into tasks."""


def compile_module(
    module: Module,
    target: str = "cpu",
    device: str | Path | Device | None = None,
    values: bool = True,
    expander: str = "bytecode",
    given: Mapping[str, Any] | None = None,
    proof: Proof | None = None,
) -> Program:
    """Compile a module, for example one that `parse` returned; needs no data and no sizes.

    Args:
        module: its entry is a workload, or a kernel that is then one task.
        target: name of a registered target.
        device: the device that the target `sim` simulates.
        values: whether `sim` runs the kernels too.
        expander: what expands the workload on the `cpu`: `bytecode` or `source`.
        given: without `values`, what tensors and axes hold that tasks write and that decide what runs, by
            name: arrays, and `Sparse` values for what `group_by` makes.
        proof: what `prove` returned for the module; runs on the `cpu` leave out checks of what is proved.

    Raises:
        InvalidIR: the module has no entry.
        CompileError: the target or the device is unknown, or cannot build the module.
    """
    return compile_program(Traced(module, {}), target, device, values, expander, given, proof)


def compile_program(
    traced: Traced,
    target: str = "cpu",
    device: str | Path | Device | None = None,
    values: bool = True,
    expander: str = "bytecode",
    given: Mapping[str, Any] | None = None,
    proof: Proof | None = None,
) -> Program:
    """Compile a traced workload.

    Args:
        traced: its module and the values that its tensors and sizes have unless a call gives others.
        target: name of a registered target.
        device: what the target `sim` simulates: a device, the name of a preset, or the path of a TOML file.
        values: whether `sim` runs the kernels too.
        expander: what expands the workload on the `cpu`: `bytecode` or `source`.
        given: without `values`, what tensors and axes hold that tasks write and that decide what runs, by
            name: arrays, and `Sparse` values for what `group_by` makes.
        proof: what `prove` returned for the module; runs on the `cpu` leave out checks of what is proved.

    Raises:
        UnknownTarget, UnsupportedByTarget: the target does not exist, or refuses something in the module.
        UnknownDevice, BadDevice, NoCost: the device does not exist, or has no place for a kernel.
        WrongValue: `device` or `values` without the target `sim`, or `given` with values; `proof` of another
            workload, or without the target `cpu`.
        NotSimulated: without `values`, tasks write a tensor that decides what runs.
        BadKey: a key of the schedule that no task has, or that can mean two things.
        NoCompiler, CompilerFailed, BadCache: the kernels could not be built.
    """
    module = with_entry_workload(traced.module)
    for param in module.entry_workload.params:
        if param.name in RUN_OPTIONS:
            raise NameClash(kind="run options and parameters", name=param.name, loc=param.loc)
    if proof is not None:
        require_proof_of(module, proof, target)
    with collection_paused():
        made = _target(target, device, values, expander)
        stated = _stated(given, module, is_used=target == "sim" and not values)
        return Program(verify(module), traced.defaults, made, traced.captured, stated, proof)


def _target(name: str, device: str | Path | Device | None, values: bool, expander: str) -> Target:
    if expander not in EXPANDERS or (expander != "bytecode" and name != "cpu"):
        expected = '`"bytecode"`, or `"source"` with `target="cpu"`'
        found = f'`{expander!r}` with `target="{name}"`'
        raise WrongValue(name="expander", expected=expected, found=found, loc=caller_location())
    if expander == "source":
        return registry.compiled_walk()
    if name == "sim":
        return registry.simulator(registry.DEFAULT_DEVICE if device is None else device, values)
    for option, is_given in (("device", device is not None), ("values", not values)):
        if is_given:
            expected, found = '`target="sim"` with it', f'`target="{name}"`'
            raise WrongValue(name=option, expected=expected, found=found, loc=caller_location())
    return registry.get(name)


def _stated(given: Mapping[str, Any] | None, module: Module, is_used: bool) -> dict[str, np.ndarray] | None:
    if given is not None and not is_used:
        expected = '`target="sim", values=False` with it'
        raise WrongValue(name="given", expected=expected, found="another run", loc=argument_location("given"))
    if not is_used:
        return None
    return stated_arrays(given or {}, module)


set_compile_hook(compile_program)
