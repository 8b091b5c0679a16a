"""`python -m pto_wsp` is the `pto` command."""

from __future__ import annotations

import sys

from pto_wsp.tools.main import main

if __name__ == "__main__":
    sys.exit(main())
