"""Passes over IR, and the lowering to bytecode."""
