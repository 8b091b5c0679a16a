"""What is wrong with devices and simulations."""

from __future__ import annotations

from pto_wsp.errors.base import CompileError


class UnknownDevice(CompileError):
    """A device name that no preset has."""

    code = "unknown-device"
    template = "there is no device `{name}`"
    hint = "{advice}"


class NotCalibrated(CompileError):
    """The device `host` without figures of this machine."""

    code = "not-calibrated"
    template = "the device `host` is not calibrated: {reason}"
    hint = "run `pto devices --calibrate` once"


class BadDevice(CompileError):
    """A description of a device that cannot be used."""

    code = "bad-device"
    template = "`{key}` of the device in {device} cannot be used"
    label = "expected {expected}, found {found}"


class NoCost(CompileError):
    """A kernel whose cycles cannot be found."""

    code = "no-cost"
    template = "the cycles of kernel `{kernel}` cannot be found on the device `{device}`"
    label = "{reason}"
    hint = "{advice}"


class NotSimulated(CompileError):
    """Simulated time of a program that has none."""

    code = "not-simulated"
    template = "program `{program}` {reason}"
    hint = 'compile with `target="sim"` and run, with `values=True` where tasks decide what runs'


class CyclesDiffer(CompileError):
    """A run that takes another time on a device than was stated."""

    code = "cycles-differ"
    template = "the run takes a different number of cycles on `{device}` than expected"
    label = "expected {expected} within {tolerance}, found {found}"
    hint = "find what changed with `program.report()`, or state the new number"
