"""`@workload` and `P`: functions that generate tasks, traced once while a program is compiled."""
