"""Sparse decode attention at the sizes of a large model."""
