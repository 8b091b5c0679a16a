"""`pto`: the functions of a kernel. Their signatures for type checkers are in `pto.pyi`."""

from __future__ import annotations

from pto_wsp.errors import UnknownFunction
from pto_wsp.lang.kernel.functions import FUNCTIONS, PtoFunction
from pto_wsp.lang.kernel.suggestions import suggestion
from pto_wsp.location import caller_location


def __getattr__(name: str) -> PtoFunction:
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in FUNCTIONS:
        raise UnknownFunction(name=f"pto.{name}", advice=suggestion(name), loc=caller_location())
    return FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
