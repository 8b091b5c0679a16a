"""`.pto` text: read, and written as Python."""

from pto_wsp.text.modules import parse

__all__ = ["parse"]
