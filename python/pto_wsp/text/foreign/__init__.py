"""Forms of `.pto` text that other tools write: they are read through the function builder, never written."""
