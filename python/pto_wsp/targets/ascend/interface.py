"""The names of the PTO library and of the device's runtime that emitted code uses, per version.

Emitted code is the same for all versions, so it uses names that all of them spell alike. `interface_names`
finds the names in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pto_wsp.support.record import record

VERSIONS = ("2026-04", "2026-08")
"""Versions of the library, by the month of their last change; the runtime is that of the second."""


@record
class LibraryName:
    """A name of the library.

    Attributes:
        spellings: the name per version of `VERSIONS`; None where the version lacks it.
        is_verified: whether the spelling was read in a description of the interface. Otherwise it is a guess,
            and the README of the emitted program says so.
        note: what emitted code does where a version lacks it.
    """

    spellings: tuple[str | None, ...]
    is_verified: bool = True
    note: str = ""


_OF_RUNTIME = "of the runtime, which is as new as the second version"


def _runtime(names: str, is_verified: bool = True) -> list[LibraryName]:
    return [LibraryName((None, name), is_verified, _OF_RUNTIME) for name in names.split()]


def _alike(names: str, is_verified: bool = True) -> list[LibraryName]:
    return [LibraryName((name,) * len(VERSIONS), is_verified) for name in names.split()]


_ROWS = [
    *_alike(
        """
        TADD TSUB TMUL TDIV TMAX TMIN TFMOD TAND TOR TNOT TABS TNEG TRELU TEXP TLOG TSQRT TRSQRT
        TADDS TSUBS TMULS TDIVS TMAXS TMINS TFMODS TANDS TORS TLRELU TEXPANDS TCVT
        TCMPS TSEL CmpMode::EQ CmpMode::NE CmpMode::LT CmpMode::LE CmpMode::GT CmpMode::GE
        TROWSUM TROWMAX TROWMIN TCOLSUM TCOLMAX TCOLMIN TROWEXPAND TCOLEXPAND
        TROWEXPANDADD TROWEXPANDSUB TROWEXPANDMUL TROWEXPANDDIV TROWEXPANDMAX TROWEXPANDMIN
        TCOLEXPANDADD TCOLEXPANDSUB TCOLEXPANDMUL TCOLEXPANDDIV TCOLEXPANDMAX TCOLEXPANDMIN
        TMATMUL TMATMUL_ACC TMOV TTRANS TLOAD TSTORE TASSIGN
        set_flag wait_flag pipe_barrier
        PIPE_S PIPE_V PIPE_M PIPE_MTE1 PIPE_MTE2 PIPE_MTE3 PIPE_FIX PIPE_ALL EVENT_ID0
        Layout::DN TileType::Vec TileType::Mat BLayout::RowMajor BLayout::ColMajor
        SLayout::RowMajor SLayout::ColMajor TileLeft TileRight TileAcc GlobalTensor
        NPU_MEMORY_INIT NPUArch::A2A3 NPUArch::A5
        """
    ),
    *(
        LibraryName((None, f"EVENT_ID{n}"), note="`ascend.hpp` defines it for simulated cores")
        for n in range(1, 8)
    ),
    *_alike(
        """
        RoundMode::CAST_RINT RoundMode::CAST_ROUND RoundMode::CAST_FLOOR RoundMode::CAST_CEIL
        RoundMode::CAST_TRUNC
        """,
        is_verified=False,
    ),
    *_alike("tile.data", is_verified=False),
    *_runtime(
        """
        ChipTensor ChipTaskArgs CoreTaskArgs start_offset add_input add_inout add_scalar kernel_entry
        rt_submit_aic_task rt_submit_aiv_task aicpu_orchestration_config aicpu_orchestration_entry
        """
    ),
    *_runtime("tensor.h orchestration_api.h OrchestrationConfig shapes strides ndims", is_verified=False),
    *_runtime("args.tensor args.scalar get_tensor_data", is_verified=False),
]

INTERFACE: dict[str, LibraryName] = {row.spellings[-1] or "": row for row in _ROWS}
"""All of them, by the spelling of the newest version."""

_NAME = re.compile(
    r"\b(?:(?:Layout|TileType|BLayout|SLayout|RoundMode|CmpMode|NPUArch)::\w+"
    r"|T(?:[A-Z]{2,}(?:_ACC)?)(?=\()|(?:PIPE|EVENT|NPU)_[A-Z]\w*|Tile(?:Left|Right|Acc)|GlobalTensor"
    r"|set_flag|wait_flag|pipe_barrier|Chip(?:Tensor|TaskArgs)|CoreTaskArgs|OrchestrationConfig"
    r"|rt_submit_\w+|get_tensor_data|aicpu_orchestration_\w+|kernel_entry|tensor\.h|orchestration_api\.h"
    r"|args\.(?:tensor|scalar)(?=\()|tile\.data(?=\(\)))\b"
    r"|(?<=[.>])(?:shapes|strides|ndims|start_offset|add_input|add_inout|add_scalar)\b"
)


def interface_names(text: str) -> set[str]:
    """Return the names of the library that a text of emitted code uses."""
    return set(_NAME.findall(text))


def unverified(texts: Iterable[str]) -> list[str]:
    """Return the names in texts of emitted code whose spelling was not read anywhere, sorted."""
    used = set[str]().union(*map(interface_names, texts))
    return sorted(name for name in used if name in INTERFACE and not INTERFACE[name].is_verified)
