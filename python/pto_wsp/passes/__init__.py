"""Passes from IR to IR."""
