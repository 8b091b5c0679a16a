"""One kernel and one workload: scale the rows of an array of any height, check them, and look at the run.

python examples/01_scale_rows/scale_rows.py [--rows N] [--picture FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, kernel, pto, workload

COLS = 128
TAILS = (1, 7, 63, 64, 65, 1000)
PICTURE = Path(__file__).parents[2] / "out" / "scale_rows.svg"


@kernel
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]], factor: Scalar[f32]):
    """Multiply the valid rows of a tile by a factor."""
    pto.store(y, x * factor)


@workload
def scale_rows(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128], factor: Scalar[f32]):
    """One independent task per 64 rows; the last one takes what is left."""
    for rows in P.tiles("n", 64):
        scale[rows](x=X[rows], y=Y[rows], factor=factor)


def main() -> None:
    """Compile once, run at every height, compare with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="height of the large array")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where the timeline is written")
    options = parser.parse_args()
    if options.rows < 0:
        parser.error("sizes are at least 0")

    began = time.perf_counter()
    program = scale_rows.compile(target="cpu")
    compile_ms = (time.perf_counter() - began) * 1e3
    print("Y[n, 128] = X[n, 128] * factor: one kernel on tiles of 64 rows, any number of rows\n")
    print(f"  compile() took {compile_ms:.0f} ms, before any size was known; compiled kernels are kept\n")

    x = np.random.default_rng(0).random((options.rows, COLS), dtype=np.float32)
    y, expected = np.ones_like(x), np.ones_like(x)
    print(f"  {'rows':>11} {'tasks':>8} {'pto-wsp':>12} {'numpy':>12} {'compiles':>9}   result")
    tails = (rows for rows in TAILS if rows <= options.rows)
    for number, rows in enumerate((options.rows, *tails), start=2):
        source, target = x[:rows], y[:rows]
        program(X=source, Y=target, factor=float(number))
        stats = program.stats
        assert stats is not None
        began = time.perf_counter()
        np.multiply(source, np.float32(number), out=expected[:rows])
        numpy_ms = (time.perf_counter() - began) * 1e3
        equal = np.array_equal(target, expected[:rows])
        # The first run reports what compile() had to build; every later one must build nothing.
        verdict = "bitwise equal to numpy" if equal else "DIFFERS FROM NUMPY"
        print(
            f"  {rows:>11,} {stats.tasks:>8,} {stats.run_ms:>9.3f} ms {numpy_ms:>9.3f} ms "
            f"{stats.compiles:>9}   {verdict}"
        )
        if not equal:
            raise SystemExit(1)

    program.run(X=x, Y=y, factor=0.5, trace=True)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    assert program.trace is not None
    program.trace.save_svg(options.picture)
    program.trace.save(options.picture.with_suffix(".json"))
    print(f"\n  {program.stats}")
    print(f"  timeline: {options.picture} (any browser)")
    print(f"            {options.picture.with_suffix('.json')} (ui.perfetto.dev)")


if __name__ == "__main__":
    main()
