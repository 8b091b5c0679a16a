"""The bytecode format, mirrored from include/pto/wsp/bytecode/format.hpp (a test compares the two)."""

from __future__ import annotations

import enum
import struct

MAGIC = 0x50544F57
VERSION = 5
MAX_TENSOR_RANK = 8
MAX_LOOP_DEPTH = 16
MAX_COND_DEPTH = 256
MAX_EXPR_STACK = 32
MAX_BUFFERS = 1 << 20
MAX_TOKEN_SCALARS = 0xFF
MAX_OPERAND1 = 0xFFFF
MAX_ARGUMENTS = 0xFFFF

HEADER = struct.Struct("<10IQ")
INSTRUCTION = struct.Struct("<BBHI")
AXIS = struct.Struct("<BBHIII")
KERNEL = struct.Struct("<QHHHH")
TENSOR = struct.Struct("<BBBBBBBx8q")
SYMBOL = struct.Struct("<BB6x")
CONSTANT = struct.Struct("<q")


class Op(enum.IntEnum):
    """Opcodes; docs/bytecode.md describes them."""

    HALT = 0x00
    NOP = 0x01
    PARALLEL_FOR = 0x10
    FOR_EACH = 0x11
    COND = 0x13
    RANGE_FOR = 0x18
    END_LOOP = 0x19
    ELSE = 0x1A
    END_COND = 0x1B
    SET = 0x1C
    FAIL = 0x1D
    PROCESS = 0x1E
    END_PROCESS = 0x1F
    TASK = 0x20
    PARAM_CONST = 0x21
    PARAM_LOOPVAR = 0x22
    IO_INPUT = 0x23
    IO_OUTPUT = 0x24
    IO_INOUT = 0x25
    PARAM_SYMBOL = 0x26
    PARAM_EXPR = 0x27
    DIM_INDEX = 0x28
    DIM_RANGE = 0x29
    DIM_EXTENT = 0x2A
    DIM_TILE = 0x2B
    DIM_FULL = 0x2C
    DIM_ROWS = 0x2D
    DIM_MERGED = 0x2E
    AFTER = 0x2F
    WORKSPACE = 0x35
    COST = 0x36
    KEY = 0x37
    ORDER = 0x38
    STREAM = 0x39
    POOL = 0x3A
    TURN = 0x3B
    ADMIT = 0x3C
    GROUP = 0x3D
    PREFETCH = 0x3E
    SEND = 0x48
    END_SEND = 0x49
    RECEIVE = 0x4A
    END_RECEIVE = 0x4B
    RECEIVE_EACH = 0x4C
    WAIT = 0x4D
    EXPR_END = 0x50
    EXPR_CONST = 0x51
    EXPR_REG = 0x52
    EXPR_SYMBOL = 0x53
    EXPR_ELEMENT = 0x54
    EXPR_ADD = 0x58
    EXPR_SUB = 0x59
    EXPR_MUL = 0x5A
    EXPR_FLOORDIV = 0x5B
    EXPR_MOD = 0x5C
    EXPR_MIN = 0x5D
    EXPR_MAX = 0x5E
    EXPR_NEG = 0x5F
    EXPR_LT = 0x60
    EXPR_LE = 0x61
    EXPR_EQ = 0x62
    EXPR_NE = 0x63
    EXPR_AND = 0x64
    EXPR_OR = 0x65
    EXPR_NOT = 0x66
    EXPR_SELECT = 0x67
    EXPR_BITAND = 0x68
    EXPR_BITOR = 0x69
    EXPR_XOR = 0x6A
    EXPR_INVERT = 0x6B
    EXPR_SHL = 0x6C
    EXPR_SHR = 0x6D
    EXPR_BOOL = 0x6E
    EXPR_U64 = 0x6F
    EXPR_F32 = 0x70
    EXPR_WITHIN = 0x71


class AxisKind(enum.IntEnum):
    """What a loop runs over."""

    DENSE = 0
    TILES = 1


class ChannelKind(enum.IntEnum):
    """Whether a tensor holds the buffers of a channel."""

    NONE = 0
    RING = 1
    RENDEZVOUS = 2


class MergeKind(enum.IntEnum):
    """Which of several senders of a channel sends the next token."""

    TURNS = 0
    TIME = 1


class SymbolKind(enum.IntEnum):
    """The source of a symbol's value."""

    SIZE = 0
    SCALAR = 1


def fnv1a(name: str) -> int:
    """Return the FNV-1a 64-bit hash of a name."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
