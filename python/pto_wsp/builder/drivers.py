"""Names that programs of other function builders import, and what there is in their place."""

from __future__ import annotations

from pto_wsp.errors import NotYetSupported
from pto_wsp.location import caller_location

_INSTEAD = {
    "PTOCompiler": "`print(module)` is `.pto` text, and `module.compile()` makes a program that runs",
    "PTOModuleCompiler": "`print(module)` is `.pto` text, and `module.compile()` makes a program that runs; "
    "`pto opt --passes` runs passes",
    "MultiBackendCodeGenerator": "`module.compile(target)` makes a program; `pto emit` shows generated code",
}


def refuse_driver(name: str) -> None:
    """Raise NotYetSupported if `name` is that of a compiler driver, with what to use."""
    if name in _INSTEAD:
        raise NotYetSupported(
            feature=f"`{name}`",
            detail="modules compile themselves",
            advice=_INSTEAD[name],
            loc=caller_location(),
        )
