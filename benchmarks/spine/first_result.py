"""From the start of the process to the first result: the script that `warm_start_ms` runs."""

import numpy as np

from benchmarks.spine.programs import one_kernel

x = np.ones((64, 128), np.float32)
y = np.zeros_like(x)
one_kernel(1.0).compile(target="cpu")(X=x, Y=y, factor=2.0)
assert y[63, 127] == 3.0
