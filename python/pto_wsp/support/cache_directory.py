"""Where this user's files of the package are: built libraries, lowered programs, the calibration."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "PTO_WSP_CACHE"


def default_directory() -> Path:
    """Return `$PTO_WSP_CACHE`, or `pto-wsp` in the user's cache directory."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "pto-wsp"
