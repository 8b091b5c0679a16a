"""A decoder layer under requests that come and go: each batch mixes chunks of prompts with decode steps.

python -m examples.llama [--heads N] [--dim N] [--inner N] [--requests N] [--longest N] [--chunk N]
    [--weights {f32,bf16}] [--activations {f32,bf16}]
"""

import argparse
from collections.abc import Iterator

import numpy as np

import pto_wsp
from examples.llama.kernels import Shape, Types
from examples.llama.model import MATRICES, Cache, Chunk, Layer, Plain, pack, random_weights, reference
from pto_wsp.types.dtype import DType

STEPS = 4  # decode steps of a request, at most
TOLERANCES = {"f32": 1e-4, "bf16": 4e-3}  # by activations, relative to the largest output


def batches(lengths: np.ndarray, prompts: np.ndarray, chunk: int) -> Iterator[list[Chunk]]:
    """Yield what runs together: a new request joins with every batch, and each gives a chunk or a step.

    Args:
        lengths: tokens of each request.
        prompts: how many of them are its prompt.
        chunk: most tokens of a prompt in one batch.
    """
    past, joined = [0] * len(lengths), 0
    while any(past[b] < length for b, length in enumerate(lengths)):
        joined = min(joined + 1, len(lengths))
        batch = []
        for b in range(joined):
            most = min(int(prompts[b]) - past[b], chunk) if past[b] < prompts[b] else 1
            if past[b] < lengths[b]:
                batch.append(Chunk(b, past[b], most))
                past[b] += most
        yield batch


def rounded(plain: Plain, weights: DType) -> Plain:
    """Return what is left of parameters in an element type; gains are 1, so that none is folded."""
    kept = {name: getattr(plain, name).astype(weights.to_numpy()).astype(np.float32) for name in MATRICES}
    ones = np.ones_like(plain.FirstGain)
    return plain._replace(**kept, FirstGain=ones, SecondGain=ones)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heads", type=int, default=8, help="of 4096 hidden elements, LLaMA-7B has 32")
    parser.add_argument("--dim", type=int, default=64, help="elements of a head (LLaMA-7B: 128)")
    parser.add_argument("--inner", type=int, default=1376, help="of the feed-forward network (11008)")
    parser.add_argument("--requests", type=int, default=5, help="number of requests")
    parser.add_argument("--longest", type=int, default=300, help="tokens of the longest prompt")
    parser.add_argument("--chunk", type=int, default=128, help="most tokens of a prompt in one batch")
    for name in ("weights", "activations"):
        parser.add_argument(f"--{name}", choices=("f32", "bf16"), default="f32", help="element type")
    options = parser.parse_args()
    sizes = (options.heads, options.dim, options.inner, options.requests, options.longest, options.chunk)
    if min(sizes) < 1:
        parser.error("sizes are at least 1")
    if options.dim % 4 or options.inner % (options.dim // 2):
        parser.error("dim is a multiple of 4, and inner of half of it")
    return options


def main() -> None:
    """Compile once, run batch after batch, compare each with numpy."""
    options = read_options()
    shape = Shape(options.heads, options.dim, options.inner)
    weights, activations = getattr(pto_wsp, options.weights), getattr(pto_wsp, options.activations)
    rng = np.random.default_rng(0)
    plain = rounded(random_weights(rng, shape), weights)
    layer = Layer(shape, pack(plain, shape, weights), Types(weights, activations))
    prompts = rng.integers(1, options.longest + 1, options.requests)
    lengths = prompts + rng.integers(1, STEPS + 1, options.requests)
    inputs = [rng.standard_normal((count, shape.hidden), np.float32) for count in lengths]
    expected = [reference(plain, shape, hidden, activations) for hidden in inputs]
    cache = Cache.of(shape, options.requests, int(lengths.max()))
    print(
        f"hidden {shape.hidden}, {shape.heads} heads of {shape.dim}, inner {shape.inner}, {weights} weights, "
        f"{activations} activations"
    )
    print(f"\n  {'tasks':>6} {'ms':>8} {'compiles':>9} {'off by':>8}   tokens after tokens in the cache")
    for batch in batches(lengths, prompts, options.chunk):
        hidden = np.concatenate([inputs[b][past : past + count] for b, past, count in batch])
        wanted = np.concatenate([expected[b][past : past + count] for b, past, count in batch])
        layer(hidden, batch, cache)
        stats, found = layer.program.stats, float(np.abs(hidden - wanted).max() / np.abs(wanted).max())
        assert stats is not None
        listed = "  ".join(f"{count}@{past}" for _, past, count in batch)
        print(f"  {stats.tasks:>6,} {stats.run_ms:>8.2f} {stats.compiles:>9} {found:>8.1e}   {listed}")
        if not found <= TOLERANCES[options.activations]:
            raise SystemExit(f"differs from numpy by more than {TOLERANCES[options.activations]:.0e}")


if __name__ == "__main__":
    main()
