"""Forms of `.pto` text that are known and refused."""

from __future__ import annotations

from pto_wsp.errors import NoMeaning
from pto_wsp.isa.refused import REFUSED
from pto_wsp.text.tokens import Cursor

_LEAVES = "loops run to their end"
_MLIR = ("programs in MLIR are not read", "write functions of PTO Assembly: `func @name(...) {`")
_STATEMENTS = {
    **dict.fromkeys(("module", "func.func"), _MLIR),
    "BREAK": (_LEAVES, "say in the loop's bound, or with IF, which iterations do something"),
    "CONTINUE": (_LEAVES, "put the rest of the body under IF"),
    **dict.fromkeys(("set_flag", "wait_flag", "pipe_barrier"), ("order follows from data", REFUSED["tsync"])),
    "YIELD": ("blocks give no values", "assign scalars in the block: they are known behind it"),
}


def refuse_known(cursor: Cursor) -> None:
    """Raise NoMeaning where a statement or instruction is one that other systems know."""
    token = cursor.token
    known = _STATEMENTS.get(token.text)
    if known is None and token.text.startswith("tmov.") and token.text not in REFUSED:
        known = ("places of tiles are chosen by each target", "write `tmov`, a copy")
    if known is None and token.text in REFUSED:
        known = ("it is no instruction of tiles here", REFUSED[token.text])
    if known is not None:
        reason, advice = known
        raise NoMeaning(form=f"`{token.text}`", reason=reason, advice=advice, loc=cursor.place(token))
