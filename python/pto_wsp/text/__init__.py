"""`.pto` text: read, and written as Python."""

from pto_wsp.text.modules import parse
from pto_wsp.text.python_text import to_python

__all__ = ["parse", "to_python"]
