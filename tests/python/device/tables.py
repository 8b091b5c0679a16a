"""Devices that tests make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pto_wsp.device.model import Device, InstructionCost
from pto_wsp.device.reader import get_device


def device_of(folder: Path, text: str) -> Device:
    """Return the device that a text in TOML describes."""
    path = folder / "device.toml"
    path.write_text(text)
    return get_device(path)


def cost_table(name: str) -> Mapping[str, InstructionCost]:
    """Return the costs of a table of the package."""
    with TemporaryDirectory() as folder:
        text = f'base = "ascend_910b"\nname = "with_{name}"\ncosts = "{name}"\n'
        return device_of(Path(folder), text).costs
