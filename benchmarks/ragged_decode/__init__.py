"""Decode attention of a ragged batch."""
