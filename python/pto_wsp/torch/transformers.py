"""Attention for Hugging Face transformers: `attn_implementation="pto_wsp"`.

Importing this module registers it. Padded rows cost nothing: a batch is computed as the ragged batch that its
mask describes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from pto_wsp.errors import BadMask
from pto_wsp.torch.attention import masked_attention

NAME = "pto_wsp"
REFUSED = ("s_aux", "position_bias", "relative_position_bias", "head_mask")
"""Arguments that would change the result, and that the operator does not compute."""


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of one layer, as transformers calls it.

    Args:
        module: the layer; its `is_causal` decides if there is no mask.
        query: [batch, heads, queries, dim].
        key: [batch, kv_heads, keys, dim].
        value: as `key`.
        attention_mask: [batch, 1, queries, keys] bool, or None.
        scaling: factor of the scores; None: 1 / sqrt(dim).
        dropout: must be 0.
        softcap: c of c * tanh(score / c); None: none.
        is_causal: replaces that of the module.
        options: others, of which those in `REFUSED` must be None.

    Returns:
        [batch, queries, heads, dim], and None for the weights, which are not kept.

    Raises:
        BadMask: the mask, or an option, is not supported.
    """
    for name in REFUSED:
        if options.get(name) is not None:
            raise BadMask(reason=f"the argument `{name}` is not supported")
    if dropout:
        raise BadMask(reason=f"expected no dropout, found {dropout}")
    if attention_mask is None:
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        attention_mask = _whole_mask(query, key, causal)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return masked_attention(query, key, value, attention_mask, float(scale), float(softcap or 0.0)), None


def _whole_mask(query: torch.Tensor, key: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Return the mask of a batch without one: all keys, or causal, the queries being the last."""
    queries, keys = query.shape[2], key.shape[2]
    mask = torch.ones(queries, keys, dtype=torch.bool)
    if is_causal:
        mask = mask.tril(keys - queries)
    return mask.expand(query.shape[0], 1, queries, keys)


def mask_forward(*args: Any, **options: Any) -> torch.Tensor | None:
    """Return the mask of a batch as [batch, 1, queries, keys] bool, always whole."""
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, **{**options, **skips})


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask_forward)
