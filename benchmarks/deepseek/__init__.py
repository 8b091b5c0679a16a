"""A decode step of DeepSeek V3.2 attention."""
