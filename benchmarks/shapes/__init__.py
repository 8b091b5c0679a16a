"""Shapes of access with one, two and four workers: more workers never take longer than one."""
