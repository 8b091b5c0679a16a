"""Workloads as operators of other libraries."""

from __future__ import annotations

from pto_wsp.errors.base import CompileError, RunError


class BadReturn(CompileError):
    """A tensor that a torch operator cannot return."""

    code = "bad-return"
    template = "the operator cannot return `{name}`"
    label = "{reason}"
    hint = "return tensors that tasks write"


class NoGradient(RunError):
    """A gradient through a torch operator that has none."""

    code = "no-gradient"
    template = "the operator `{op}` has no gradient"
    hint = "call it under `torch.no_grad()`, or register its formula (docs/torch.md)"


class BadMask(RunError):
    """A mask, or an option of attention, that the operator for torch does not support."""

    code = "bad-mask"
    template = "the attention of PTO-WSP cannot compute this"
    label = "{reason}"
    hint = "use another `attn_implementation`"
