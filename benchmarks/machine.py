"""Which machine and which state of the project a result belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from benchmarks.calibrate import compiler
from benchmarks.harness import available_cores

ROOT = Path(__file__).parents[1]


def describe() -> dict[str, str | int]:
    """Return processor, cores, memory, system, compiler and Python."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "memory_gib": round(pages * page_bytes / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": _first_line([*compiler(), "--version"]),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the commit that is checked out, marked when tracked files differ from it."""
    name = _first_line(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    changed = _first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return (name or "unknown") + ("+changes" if changed else "")


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name, generation = facts.get("model name") or platform.processor(), _generation(facts)
    return f"{name} ({generation})" if generation else name


def _generation(facts: dict[str, str]) -> str:
    """Return the generation of a processor of AMD: names of virtual machines leave it out."""
    match facts.get("vendor_id"), facts.get("cpu family"):
        case "AuthenticAMD", "25":
            return "Zen 4" if "avx512f" in facts["flags"].split() else "Zen 3"
        case "AuthenticAMD", "26":
            return "Zen 5"
        case _:
            return ""


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else ""
