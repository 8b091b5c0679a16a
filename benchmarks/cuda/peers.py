"""The rows with peers in torch. Each pair computes the same from the same arrays, which is checked first.

The functions work on a card, and on the CPU with small sizes for tests. There the target `cuda` needs a
substitute for the driver.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.cuda import programs
from benchmarks.cuda.roofline import Limits, percent_of_limits
from benchmarks.cuda.torch_layer import Decoder
from benchmarks.harness import Bench, Row
from examples.llm.checkpoint import Checkpoint, pack
from examples.llm.config import Config
from examples.llm.kernels import PAGE
from examples.llm.model import Chunk, Model
from pto_wsp import Program, Ragged, bf16

paged_decode: Any = importlib.import_module("examples.02_paged_decode.paged_decode")

TOLERANCE = 0.03
"""Largest difference of results of bf16, of the largest result."""


LAYERS = Config(2, 4096, 32, 8, 128, 14336, vocab=512, context=2048)
"""Two layers of the sizes of LLaMA 3 8B."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the rows.

    Attributes:
        gemm: rows, columns and terms of a product.
        lengths: tokens of each request whose paged cache is read.
        prompts, heads: tokens of prompts that are attended to, and heads.
        pairs, inner, outer: rows of the grouped product, its terms and its columns.
        decoder: the layers of a decode step.
        positions: tokens before the step, of each request.
    """

    gemm: int = 4096
    lengths: tuple[int, ...] = tuple(int(n) for n in np.geomspace(1024, 32768, 64))
    prompts: tuple[int, ...] = (4096, 512, 2048, 1400)
    heads: int = 32
    pairs: int = 512 * 6
    inner: int = 2048
    outer: int = 1408
    decoder: Config = LAYERS
    positions: tuple[int, ...] = (1000,) * 16


SMALL = Sizes(
    128, (40, 3, 17), (70, 3), 2, 70, 64, 128, Config(2, 64, 4, 2, 16, 128, vocab=64, context=64), (5, 5)
)
"""Sizes for tests."""


@dataclass(frozen=True)
class Place:
    """Where torch computes: `cuda` or `cpu`."""

    device: str = "cuda"

    def put(self, array: np.ndarray) -> Any:
        """Return an array as a tensor; torch takes bf16 as bytes."""
        if array.dtype == bf16.to_numpy():
            return torch.from_numpy(array.view(np.int16)).to(self.device).view(torch.bfloat16)
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def random(self, *dims: int, scale: float = 1.0, seed: int = 0) -> Any:
        """Return normal numbers of bf16."""
        generator = torch.Generator(self.device).manual_seed(seed)
        found = torch.randn(*dims, generator=generator, device=self.device)
        return (found * scale).to(torch.bfloat16)

    def empty(self, *dims: int, dtype: Any = torch.bfloat16) -> Any:
        """Return an array without values."""
        return torch.empty(*dims, dtype=dtype, device=self.device)

    def wait(self) -> None:
        """Wait for the work of the card."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def ms(self, function: Callable[[], object]) -> Callable[[], float]:
        """Return a function that calls another one, waits, and returns milliseconds."""

        def timed() -> float:
            self.wait()
            began = time.perf_counter()
            function()
            self.wait()
            return 1e3 * (time.perf_counter() - began)

        return timed


class Differs(Exception):
    """Two programs that are compared have different results."""


def require_close(found: Any, wanted: Any, what: str) -> None:
    """Refuse to time programs that do not compute the same.

    Raises:
        Differs: an element differs by more than `TOLERANCE` of the largest one.
    """
    difference = (found.float() - wanted.float()).abs().max().item()
    largest = wanted.float().abs().max().item()
    if not difference <= TOLERANCE * largest:
        raise Differs(f"{what}: expected a difference of at most {TOLERANCE * largest}, found {difference}")


def run(bench: Bench, place: Place = Place(), sizes: Sizes = Sizes()) -> None:
    """Measure every row that has a peer in torch."""
    gemm(bench, place, sizes)
    decode(bench, place, sizes)
    prefill(bench, place, sizes)
    grouped(bench, place, sizes)
    layers(bench, place, sizes)
    rooflines(bench, place, sizes)


def compare(
    bench: Bench,
    place: Place,
    name: str,
    goal: str,
    *,
    ours: Callable[[], object],
    peer: Callable[[], object],
) -> None:
    """Add the row of the time of a peer over ours; the peer's name is the end of the row's."""
    found = bench.measure({"ours": place.ms(ours), "peer": place.ms(peer)}, rounds=bench.rounds(15, 2))
    mine, theirs = found["ours"], found["peer"]
    whose, noisy = name.rpartition("_vs_")[2], mine.noisy or theirs.noisy
    ratio = theirs.value / mine.value
    bench.rows.append(Row(name, mine.value, "ms", whose, theirs.value, ratio, f"ratio {goal}", noisy))


def gemm(bench: Bench, place: Place, sizes: Sizes) -> None:
    """A square product of bf16."""
    n = sizes.gemm
    a, b, c = place.random(n, n), place.random(n, n, seed=1), place.empty(n, n)
    program = programs.gemm.compile("cuda")
    program(A=a, B=b, C=c)
    require_close(c, a @ b, "a product")
    compare(
        bench, place, "gpu_gemm_bf16_4096_vs_torch", ">= 0.45",
        ours=lambda: program(A=a, B=b, C=c), peer=lambda: torch.matmul(a, b, out=c),
    )  # fmt: skip


def decode(bench: Bench, place: Place, sizes: Sizes) -> None:
    """Paged attention of requests of many lengths: bytes per second, of what torch reads."""
    arrays, size = decode_arrays(place, sizes)
    program = paged_decode.paged_decode(bf16).compile("cuda")
    program(**arrays)
    require_close(arrays["O"], attended(arrays, sizes.lengths), "paged attention")
    everything = place.random(size // 2).view(torch.int32)
    reading = place.ms(lambda: torch.amax(everything))
    steps = {"ours": place.ms(lambda: program(**arrays)), "read": reading}
    found = bench.measure(steps, rounds=bench.rounds(15, 2))
    percent = 100 * found["read"].value / found["ours"].value
    noisy = found["ours"].noisy or found["read"].noisy
    bench.rows.append(Row("gpu_decode_pct_hbm", percent, "% of a read", goal=">= 70", noisy=noisy))
    host = bench.measure({"host": lambda: host_us(program, arrays, place)}, rounds=bench.rounds(15, 2))
    bench.add("gpu_host_us_per_step", host["host"], "us", "<= 10")


def decode_arrays(place: Place, sizes: Sizes) -> tuple[dict[str, Any], int]:
    """Return the arrays of paged attention, and the bytes of keys and values that it reads."""
    heads, group, dim, page = (getattr(paged_decode, name) for name in ("KV_HEADS", "GROUP", "DIM", "PAGE"))
    lengths = np.array(sizes.lengths, np.int32)
    pages = -(-lengths // page)
    numbers = np.random.default_rng(0).permutation(int(pages.sum())).astype(np.int32)
    table = np.zeros((len(lengths), int(pages.max())), np.int32)
    for row, own in zip(table, np.split(numbers, np.cumsum(pages)[:-1]), strict=True):
        row[: len(own)] = own
    chunks = -(-int(lengths.max()) // paged_decode.CHUNK)
    batch, f32 = len(lengths), torch.float32
    arrays = {
        "Lengths": place.put(lengths),
        "BlockTable": place.put(table),
        "Q": place.random(batch, heads, group, dim).float(),
        "K": place.random(len(numbers), heads, page, dim, seed=1),
        "V": place.random(len(numbers), heads, page, dim, seed=2),
        "Parts": place.empty(batch, heads, chunks, group, dim, dtype=f32),
        "PartLSE": place.empty(batch, heads, chunks, group, 1, dtype=f32),
        "O": place.empty(batch, heads, group, dim, dtype=f32),
        "LSE": place.empty(batch, heads, group, 1, dtype=f32),
    }
    return arrays, int(lengths.sum()) * heads * dim * 2 * 2


def attended(arrays: dict[str, Any], lengths: tuple[int, ...]) -> Any:
    """Return what torch computes, one request after another."""
    rows = []
    for b, length in enumerate(lengths):
        pages = arrays["BlockTable"][b, : -(-length // paged_decode.PAGE)].long()
        # [pages, heads, tokens of a page, dim] -> [heads, tokens, dim]
        k, v = (arrays[x][pages].transpose(0, 1).flatten(1, 2)[:, :length].float() for x in "KV")
        rows.append(torch.nn.functional.scaled_dot_product_attention(arrays["Q"][b], k, v))
    return torch.stack(rows)


def prefill(bench: Bench, place: Place, sizes: Sizes) -> None:
    """Causal attention of whole prompts; torch attends one prompt after another."""
    program, arrays = prefill_call(place, sizes)
    program(**arrays)
    require_close(arrays["O"], prompts_attended(arrays), "attention of prompts")
    compare(
        bench, place, "gpu_prefill_bf16_vs_torch", ">= 0.3",
        ours=lambda: program(**arrays), peer=lambda: prompts_attended(arrays),
    )  # fmt: skip


def prefill_call(place: Place, sizes: Sizes) -> tuple[Program, dict[str, Any]]:
    """Return the program of attention of prompts, and its arrays."""
    dims = sum(sizes.prompts), sizes.heads, programs.DIM
    arrays = {name: place.random(*dims, seed=seed) for seed, name in enumerate("QKV")}
    arrays |= {"prompts": Ragged.lengths(sizes.prompts), "O": place.empty(*dims)}
    return programs.prefill.compile("cuda"), arrays


def prompts_attended(arrays: dict[str, Any]) -> Any:
    """Return what torch computes."""
    offsets = [int(at) for at in arrays["prompts"].offsets]
    rows = []
    for first, last in itertools.pairwise(offsets):
        # [tokens, heads, dim] -> [1, heads, tokens, dim]
        q, k, v = (arrays[name][first:last].transpose(0, 1)[None] for name in "QKV")
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        rows.append(found[0].transpose(0, 1))
    return torch.cat(rows)


def host_us(program: Program, arrays: dict[str, Any], place: Place) -> float:
    """Return the microseconds until a call is launched, with lengths and pages on the card."""
    place.wait()
    began = time.perf_counter()
    submitted = program.submit(**arrays)
    took = time.perf_counter() - began
    submitted.wait()
    return 1e6 * took


def grouped(bench: Bench, place: Place, sizes: Sizes) -> None:
    """A product per expert, with the sorting, gathering and scattering of its rows."""
    grouped_mm = getattr(torch, "_grouped_mm", None)
    if grouped_mm is None:
        bench.skipped["gpu_moe_vs_grouped_mm"] = "needs `torch._grouped_mm`"
        return
    x = place.random(sizes.pairs, sizes.inner)
    w = place.random(programs.EXPERTS, sizes.inner, sizes.outer, seed=1, scale=sizes.inner**-0.5)
    expert = place.put(np.random.default_rng(0).integers(0, programs.EXPERTS, sizes.pairs).astype(np.int32))
    y, z = place.empty(sizes.pairs, sizes.outer), place.empty(sizes.pairs, sizes.outer)
    program = programs.grouped.compile("cuda")

    def peer() -> None:
        order = torch.argsort(expert, stable=True)
        ends = torch.bincount(expert, minlength=programs.EXPERTS).cumsum(0).to(torch.int32)
        z[order] = grouped_mm(x[order], w, offs=ends)

    program(X=x, Expert=expert, W=w, Y=y)
    peer()
    require_close(y, z, "a grouped product")
    compare(
        bench, place, "gpu_moe_vs_grouped_mm", ">= 1.2",
        ours=lambda: program(X=x, Expert=expert, W=w, Y=y), peer=peer,
    )  # fmt: skip


def layers(bench: Bench, place: Place, sizes: Sizes) -> None:
    """A decode step: against torch as it is, compiled, captured once, and captured for each step."""
    ours, theirs = decoders(place, sizes)
    require_close(ours(), theirs.step(), "a decode step")
    peers: dict[str, tuple[Callable[[], object], str]] = {"eager": (theirs.step, ">= 3")}
    if place.device == "cuda":
        peers["compiled"] = theirs.compiled(), ">= 1.0"
        peers["cuda_graph"] = theirs.captured(), ">= 0.9"
        peers["new_graphs"] = (lambda: theirs.captured()(), ">= 2")
    for name, (peer, goal) in peers.items():
        compare(bench, place, f"gpu_layer_decode_vs_{name}", goal, ours=ours, peer=peer)


def rooflines(bench: Bench, place: Place, sizes: Sizes) -> None:
    """The share of the card's limits that each kernel reaches; no goal."""
    limits, n = measured_limits(place, sizes), sizes.gemm
    product = programs.gemm.compile("cuda")
    arrays = {"A": place.random(n, n), "B": place.random(n, n, seed=1), "C": place.empty(n, n)}
    attention = paged_decode.paged_decode(bf16).compile("cuda")
    model, given = decoder_call(place, sizes, random_checkpoint(sizes.decoder))
    runs = [(product, arrays), (attention, decode_arrays(place, sizes)[0])]
    runs += [prefill_call(place, sizes), (model, given)]
    for name, (program, values) in zip(("gemm", "decode", "prefill", "layer"), runs, strict=True):
        for kernel, percent in percent_of_limits(program, values, limits).items():
            bench.rows.append(Row(f"gpu_roofline_{name}_{kernel}_pct", percent, "% of the limit"))


def measured_limits(place: Place, sizes: Sizes) -> Limits:
    """Return what torch reaches: reading 1 GiB, and square products."""
    n = sizes.gemm
    a, everything = place.random(n, n), place.random(n * n * 32).view(torch.int32)
    read = min(place.ms(lambda: torch.amax(everything))() for _ in range(5))
    narrow = min(place.ms(lambda: a @ a)() for _ in range(5))
    b = a.float()
    wide = min(place.ms(lambda: b @ b)() for _ in range(5))
    return Limits(n * n * 64 / (1e6 * read), 2 * n**3 / (1e6 * wide), 2 * n**3 / (1e6 * narrow))


def decoders(place: Place, sizes: Sizes) -> tuple[Callable[[], Any], Decoder]:
    """Return a function that returns our scores of a decode step, and a decoder in torch of equal weights."""
    checkpoint = random_checkpoint(sizes.decoder)
    program, given = decoder_call(place, sizes, checkpoint)
    count, tables = sizes.positions[0], given["Pages"].tolist()
    keys, values = cached(given["K"].transpose(3, 4), tables, count), cached(given["V"], tables, count)

    def step() -> Any:
        program(**given)
        return given["Scores"]

    return step, Decoder(checkpoint, given["Ids"][:, 0].tolist(), keys, values, place.put)


def decoder_call(place: Place, sizes: Sizes, checkpoint: Checkpoint) -> tuple[Program, dict[str, Any]]:
    """Return the program of a decoder, and what a decode step gives it; the cache holds random numbers."""
    of_each = max(sizes.positions) // PAGE + 1
    model = Model(pack(checkpoint), bf16, pages=of_each * len(sizes.positions), cache=bf16, target="cuda")
    tables = np.arange(model.pages).reshape(len(sizes.positions), of_each).tolist()
    given = model.arguments([Chunk([1 + i], n, tables[i]) for i, n in enumerate(sizes.positions)])
    kept = {name: place.put(v) if isinstance(v, np.ndarray) else v for name, v in given.items()}
    kept["K"], kept["V"] = (place.random(*kept[x].shape, seed=i) for i, x in enumerate("KV"))
    return model.program, kept


def cached(pages: Any, tables: list[list[int]], count: int) -> Any:
    """Return the first positions of each request from pages [layers, heads, pages, PAGE, dim].

    The result is [layers, requests, heads, count + 1, dim]; the last position is free.
    """
    rows = torch.stack([pages[:, :, table].flatten(2, 3)[:, :, : count + 1] for table in tables], dim=1)
    return rows.contiguous()


def random_checkpoint(config: Config) -> Checkpoint:
    """Return a model of bf16 whose values stay of order 1."""
    from tests.python.examples.llm import models

    return models.random_checkpoint(config, dtype=bf16)
