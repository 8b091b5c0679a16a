"""What the system costs around the arithmetic: tasks, compilation, start-up."""
