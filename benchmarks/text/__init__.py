"""What it costs to read and write `.pto` text, and to compile what it says."""
