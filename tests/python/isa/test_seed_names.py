"""Every instruction of the PTO ISA on tiles is a row of the table, a composition, or refused by name."""

import pytest

from pto_wsp import PTOFunctionBuilder, parse
from pto_wsp.errors import NoMeaning, TextError, UnknownInstruction
from pto_wsp.isa import BY_MNEMONIC
from pto_wsp.isa.compositions import BY_COMPOSED_MNEMONIC
from pto_wsp.isa.refused import REFUSED
from pto_wsp.isa.statements import CONTROL, SCALARS
from pto_wsp.lang.kernel import ptoisa

INSTRUCTIONS = """
    TLOAD TSTORE MGATHER MSCATTER
    TABS TNEG TNOT TEXP TLOG TSQRT TRSQRT TRECIP TRELU TLRELU TSILU
    TADD TSUB TMUL TDIV TREM TMAX TMIN TAND TOR TXOR TSHL TSHR TPRELU
    TADDS TSUBS TMULS TDIVS TREMS TMAXS TMINS TANDS TORS TXORS TSHLS TSHRS
    TADDC TADDSC TSUBC TSUBSC TCMP TCMPS TSEL TSELS
    TMATMUL TMATMUL_ACC TMATMUL_BIAS TMATMUL_MX
    TROWSUM TROWMAX TROWMIN TCOLSUM TCOLMAX TCOLMIN
    TEXPANDS TROWEXPAND TCOLEXPAND TROWEXPANDMUL TROWEXPANDDIV TROWEXPANDSUB
    TTRANS TRESHAPE TEXTRACT TGATHER TGATHERB TSCATTER TCVT TMOV TMOV_FP TSTORE_FP TCI TSORT32 TMRGSORT
    TASSIGN TSYNC SETVAL GETVAL SLOAD SSTORE
""".split()
"""The names of the PTO ISA."""

STATEMENTS = [*CONTROL, *(word for word in SCALARS if word != "getval")]
REFUSED_STATEMENTS = ("set_flag", "wait_flag", "pipe_barrier")
"""Scalar and control instructions; source as above."""


@pytest.mark.parametrize("word", [*STATEMENTS, *REFUSED_STATEMENTS])
def test_a_scalar_or_control_instruction_is_read_or_refused(word: str) -> None:
    """Of those that are read, the error names what is wrong with the words behind it."""
    with pytest.raises(TextError) as caught:
        parse(f"func @f(%x: !pto.memref<gm,...,f32>) {{\n  {word} ?\n}}\n")
    is_refused = isinstance(caught.value, NoMeaning)
    assert is_refused == (word in REFUSED_STATEMENTS), str(caught.value)
    assert "expected a statement, found" not in str(caught.value), "an unknown word"


def test_every_statement_has_its_method() -> None:
    """The words are those of the page; beside expressions, every step of a builder says one."""
    words = """LI MOV ADD SUB MUL DIV CMP LOAD STORE FOR ENDFOR WHILE DO ENDWHILE IF ELSE ENDIF BREAK CONTINUE
        YIELD CALL RETURN"""
    assert {*words.split()} <= {*CONTROL, *SCALARS}
    methods = {s.method for s in (*CONTROL.values(), *SCALARS.values())} - {""}
    assert all(callable(getattr(PTOFunctionBuilder, method)) for method in methods)
    assert all(s.doc.endswith(".") for s in (*CONTROL.values(), *SCALARS.values()))


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_an_instruction_is_known_or_refused(name: str) -> None:
    mnemonics = {name.lower(), name.lower().replace("_", ".")}
    known = {**BY_MNEMONIC, **BY_COMPOSED_MNEMONIC}
    is_known = bool(mnemonics & known.keys())
    assert is_known != bool(mnemonics & REFUSED.keys())
    if is_known:
        assert getattr(ptoisa, name).row in known.values()
        return
    with pytest.raises(UnknownInstruction) as caught:
        getattr(ptoisa, name)
    assert caught.value.fields["advice"] == REFUSED[next(iter(mnemonics & REFUSED.keys()))]
