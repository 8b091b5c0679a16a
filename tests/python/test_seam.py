"""Python's copies of the seam's numbers are those of the C++ headers."""

from pto_wsp import _native
from pto_wsp.lower import bytecode as bc
from pto_wsp.types import DTYPES


def test_numbers_agree() -> None:
    assert {t.name: t.code for t in DTYPES.values()} == _native.DTYPES
    assert {op.name: op.value for op in bc.Op} == _native.OPCODES
    assert {kind.name: kind.value for kind in bc.AxisKind} == _native.AXIS_KINDS
    assert {kind.name: kind.value for kind in bc.SymbolKind} == _native.SYMBOL_KINDS
    assert {kind.name: kind.value for kind in bc.ChannelKind} == _native.CHANNEL_KINDS
    assert {kind.name: kind.value for kind in bc.MergeKind} == _native.MERGE_KINDS
    assert _native.BYTECODE_VERSION == bc.VERSION
