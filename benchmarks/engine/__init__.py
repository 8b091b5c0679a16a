"""What a task costs: finding its place, waiting, running; beside other task runtimes."""
