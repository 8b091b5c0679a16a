import numpy as np

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, kernel, pto, workload


@kernel
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)


@workload
def scale_rows(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128], factor: Scalar[f32]):
    for rows in P.tiles("n", 64):  # ceil(n / 64) independent tiles; the last one may be partial
        scale[rows](x=X[rows], y=Y[rows], factor=factor)


program = scale_rows.compile(target="cpu")  # no data, no sizes yet
x = np.random.rand(1000, 128).astype(np.float32)
y = np.empty_like(x)
program(X=x, Y=y, factor=2.0)  # n = 1000, taken from the arrays
program(X=x[:7], Y=y[:7], factor=3.0)  # n = 7: nothing is compiled again
print(program.stats)  # tasks, times, compiles: of this run
