"""Passes over memory that arithmetic should not slow down: RMSNorm and SwiGLU."""
