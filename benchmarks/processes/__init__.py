"""The case `processes`: networks of processes."""
