"""Forms of `.pto` text that are known and refused."""

from __future__ import annotations

from pto_wsp.errors import NoMeaning
from pto_wsp.isa.compositions import BY_COMPOSED_MNEMONIC
from pto_wsp.isa.refused import REFUSED
from pto_wsp.text.tokens import Cursor

_MLIR = ("programs in MLIR are not read", "write functions of PTO Assembly: `func @name(...) {`")
_OF_OTHER_FORMS = ("the form with roles has conditionals alone", "leave the roles of parameters out")
_STATEMENTS = {
    **dict.fromkeys(("BREAK", "CONTINUE", "YIELD"), _OF_OTHER_FORMS),
    **dict.fromkeys(("module", "func.func"), _MLIR),
    **dict.fromkeys(("set_flag", "wait_flag", "pipe_barrier"), ("order follows from data", REFUSED["tsync"])),
}


def refuse_composed(cursor: Cursor) -> None:
    """Raise NoMeaning where a composition is in a function whose parameters have roles."""
    token = cursor.token
    composition = BY_COMPOSED_MNEMONIC.get(token.text)
    if composition is not None:
        reason = "the form with roles has the rows that it becomes: " + ", ".join(composition.rows)
        advice = "leave the roles of parameters out"
        raise NoMeaning(form=f"`{token.text}`", reason=reason, advice=advice, loc=cursor.place(token))


def refuse_known(cursor: Cursor) -> None:
    """Raise NoMeaning where a statement or instruction is one that other systems know."""
    token = cursor.token
    known = _STATEMENTS.get(token.text)
    if known is None and token.text.startswith("tmov.") and token.text not in BY_COMPOSED_MNEMONIC:
        known = ("places of tiles are chosen by each target", "write `tmov`, a copy")
    if known is None and token.text in REFUSED:
        known = ("it is not an instruction of tiles here", REFUSED[token.text])
    if known is not None:
        reason, advice = known
        raise NoMeaning(form=f"`{token.text}`", reason=reason, advice=advice, loc=cursor.place(token))
