"""What operators ask of a target by its name."""

from __future__ import annotations

from pto_wsp.targets import registry


def panel_cols(target: str = "cpu") -> int:
    """Return the columns of a panel of weights (`MemLayout.panels`) that products read fastest on a target.

    Raises:
        UnknownTarget: there is no such target.
        UnsupportedByTarget: the settings of the target are wrong.
    """
    return registry.get(target).preferences().panel_cols


def sums_pairs(target: str) -> bool:
    """Return whether products of two bf16 tiles add two terms at a time on a target, as `panel_cols` does."""
    return registry.get(target).preferences().sums_pairs
