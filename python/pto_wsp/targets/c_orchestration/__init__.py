"""The target `c-orchestration`: programs as C that adds tasks by the C API."""
