"""The cores and caches that the system describes."""

import os
from pathlib import Path

import pytest

from pto_wsp.device.topology import SystemCache, read_topology


def write_cache(folder: Path, index: int, kind: str, level: int, size: str, sharing: str) -> None:
    cache = folder / f"cpu{min(os.sched_getaffinity(0))}" / "cache" / f"index{index}"
    cache.mkdir(parents=True)
    for name, text in (("type", kind), ("level", str(level)), ("size", size), ("shared_cpu_list", sharing)):
        (cache / name).write_text(text + "\n")


def test_caches_are_those_of_the_system_without_instruction_caches(tmp_path: Path) -> None:
    own = str(min(os.sched_getaffinity(0)))
    write_cache(tmp_path, 0, "Data", 1, "48K", own)
    write_cache(tmp_path, 1, "Instruction", 1, "32K", own)
    write_cache(tmp_path, 2, "Unified", 2, "2M", own)
    write_cache(tmp_path, 3, "Unified", 3, "32M", "0-1023")
    topology = read_topology(tmp_path)
    cores = len(os.sched_getaffinity(0))
    assert topology.caches == (
        SystemCache(1, 48 << 10, 1),
        SystemCache(2, 2 << 20, 1),
        SystemCache(3, 32 << 20, cores),
    )
    assert topology.own == topology.caches[:2] and topology.shared == topology.caches[2]
    assert topology.cores == cores and topology.num_shared == 1 and f"{cores} cores" in topology.about


def test_a_system_that_describes_no_cache_has_none(tmp_path: Path) -> None:
    topology = read_topology(tmp_path)
    assert topology.caches == () and topology.shared is None and topology.num_shared == 0


@pytest.mark.parametrize(("size", "found"), [("512", 512), ("1G", 1 << 30)])
def test_sizes_have_units(tmp_path: Path, size: str, found: int) -> None:
    write_cache(tmp_path, 0, "Data", 1, size, "0,2-3")
    assert read_topology(tmp_path).caches[0].size == found
