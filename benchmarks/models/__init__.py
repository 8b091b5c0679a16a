"""Whole language models against llama.cpp."""
