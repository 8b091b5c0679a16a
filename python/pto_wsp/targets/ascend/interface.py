"""The names of the PTO library that emitted code uses, as each version of the library spells them.

Emitted code is the same for all versions, so it uses names that all of them spell alike. `interface_names`
finds the names in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pto_wsp.support.record import record

VERSIONS = ("2026-04", "2026-08")
"""Versions of the library, by the month of their last change."""


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


def _alike(names: str, is_verified: bool = True) -> list[LibraryName]:
    return [LibraryName((name,) * len(VERSIONS), is_verified) for name in names.split()]


_ROWS = [
    *_alike(
        """
        TADD TSUB TMUL TDIV TMAX TMIN TFMOD TAND TOR TNOT TABS TNEG TRELU TEXP TLOG TSQRT TRSQRT
        TADDS TSUBS TMULS TDIVS TMAXS TMINS TFMODS TANDS TORS TLRELU TEXPANDS TCVT
        TROWSUM TROWMAX TROWMIN TCOLSUM TCOLMAX TCOLMIN TROWEXPAND TCOLEXPAND
        TROWEXPANDADD TROWEXPANDSUB TROWEXPANDMUL TROWEXPANDDIV TROWEXPANDMAX TROWEXPANDMIN
        TCOLEXPANDADD TCOLEXPANDSUB TCOLEXPANDMUL TCOLEXPANDDIV TCOLEXPANDMAX TCOLEXPANDMIN
        TMATMUL TMATMUL_ACC TMOV TLOAD TSTORE TASSIGN
        set_flag wait_flag pipe_barrier get_block_idx
        PIPE_V PIPE_M PIPE_MTE1 PIPE_MTE2 PIPE_MTE3 PIPE_FIX PIPE_ALL EVENT_ID0
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
]

INTERFACE: dict[str, LibraryName] = {row.spellings[-1] or "": row for row in _ROWS}
"""All of them, by the spelling of the newest version."""

_NAME = re.compile(
    r"\b(?:(?:Layout|TileType|BLayout|SLayout|RoundMode|NPUArch)::\w+"
    r"|T(?:[A-Z]{2,}(?:_ACC)?)(?=\()|(?:PIPE|EVENT|NPU)_[A-Z]\w*|Tile(?:Left|Right|Acc)|GlobalTensor"
    r"|set_flag|wait_flag|pipe_barrier|get_block_idx)\b"
)


def interface_names(text: str) -> set[str]:
    """Return the names of the library that a text of emitted code uses."""
    return set(_NAME.findall(text))


def unverified(texts: Iterable[str]) -> list[str]:
    """Return the names in texts of emitted code whose spelling was not read anywhere, sorted."""
    used = set[str]().union(*map(interface_names, texts))
    return sorted(name for name in used if name in INTERFACE and not INTERFACE[name].is_verified)
