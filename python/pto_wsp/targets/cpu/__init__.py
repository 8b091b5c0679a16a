"""The machine that the program runs on: kernels as C++ with vector extensions."""
