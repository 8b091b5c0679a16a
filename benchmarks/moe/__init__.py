"""Mixtures of experts: few large ones and many small ones."""
