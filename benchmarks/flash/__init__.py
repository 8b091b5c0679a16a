"""Attention of long prompts."""
