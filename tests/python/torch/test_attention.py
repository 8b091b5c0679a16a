"""Masked attention against the definition, for every form of mask that has neighbouring keys."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.errors import BadMask, NoGradient

torch = pytest.importorskip("torch")

from pto_wsp.torch.attention import intervals, masked_attention, stretches  # noqa: E402

QUERY, KEY = np.arange(24)[:, None], np.arange(30)[None, :]


def padded(left: int, right: int) -> np.ndarray:
    return (KEY >= left) & (KEY < 30 - right)


MASKS = {
    "full": np.ones((24, 30), bool),
    "causal": KEY <= QUERY + 6,
    "window": (KEY <= QUERY + 6) & (KEY > QUERY + 6 - 5),
    "window of one": KEY == QUERY + 6,
    "padded left": (KEY <= QUERY + 6) & padded(9, 0),
    "padded right": padded(0, 11),
    "prefix, then causal": (KEY < 10) | (KEY <= QUERY),
    "packed": (KEY <= QUERY) & (KEY // 7 == QUERY // 7),
    "chunks": (KEY // 8 == (QUERY + 6) // 8) & (KEY <= QUERY + 6),
    "nothing": np.zeros((24, 30), bool),
    "every third query": (KEY <= QUERY) & (QUERY % 3 == 0),
}


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, cap: float) -> np.ndarray:
    """The definition, in f64."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, axis=1) for x in (k, v))
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) * 0.2
    if cap:
        scores = cap * np.tanh(scores / cap)
    weights = np.where(mask, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhij,bhjd->bihd", weights, v)


def arrays(batch: int, queries: int, keys: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(batch, 4, queries, 16), (batch, 2, keys, 16), (batch, 2, keys, 16)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("cap", [0.0, 3.0])
@pytest.mark.parametrize("name", MASKS)
def test_masks_agree_with_the_definition(name: str, cap: float) -> None:
    chosen = (MASKS[name], MASKS["causal"], MASKS["padded right"])
    mask = np.stack([np.broadcast_to(m, (24, 30)) for m in chosen])[:, None]
    q, k, v = arrays(3, 24, 30)
    given = [torch.from_numpy(a) for a in (q, k, v, mask)]
    found = masked_attention(*given, 0.2, cap).numpy()
    assert np.allclose(found, reference(q, k, v, mask, cap), atol=1e-5)


def test_random_masks_agree_with_the_definition() -> None:
    """Any intervals of keys, also those that no model has."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        batch, queries, keys = (int(n) for n in rng.integers(1, 12, 3))
        low, high = np.sort(rng.integers(0, keys + 1, (2, batch, queries, 1)), axis=0)
        places = np.arange(keys)
        mask = ((places >= low) & (places < high))[:, None]
        q, k, v = arrays(batch, queries, keys)
        found = masked_attention(*(torch.from_numpy(a) for a in (q, k, v, mask)), 0.2, 0.0).numpy()
        assert np.allclose(found, reference(q, k, v, mask, 0.0), atol=1e-5)


def test_a_decode_step_is_one_stretch_per_request() -> None:
    first, ends = intervals(np.array([[[True] * 5 + [False] * 3], [[False] * 2 + [True] * 6]]))
    found = stretches(first, ends, 8)
    assert found.rows.tolist() == [0, 1]
    assert found.first.tolist() == [0, 10] and found.ends.tolist() == [5, 16]


@pytest.mark.parametrize("name", ["causal", "window", "full"])
def test_a_whole_mask_is_one_stretch(name: str) -> None:
    found = stretches(*intervals(MASKS[name][None, :, :]), 30)
    assert found.counts.tolist() in ([24], [1, 23])


def test_half_types_keep_their_type() -> None:
    q, k, v = (torch.from_numpy(a).to(torch.bfloat16) for a in arrays(1, 24, 30))
    mask = torch.from_numpy(MASKS["causal"])[None, None]
    found = masked_attention(q, k, v, mask, 0.2, 0.0)
    exact = reference(*(x.float().numpy() for x in (q, k, v)), mask.numpy(), 0.0)
    assert found.dtype == torch.bfloat16
    assert np.allclose(found.float().numpy(), exact, atol=0.02)


def test_torch_accepts_the_operator() -> None:
    given = [torch.from_numpy(a) for a in (*arrays(1, 24, 30), MASKS["window"][None, None])]
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    assert set(torch.library.opcheck(masked_attention, (*given, 0.2, 0.0), test_utils=checks).values()) == {
        "SUCCESS"
    }


def test_mistakes_are_named() -> None:
    q, k, v = (torch.from_numpy(a) for a in arrays(1, 24, 30))
    holes = torch.from_numpy(MASKS["full"] & (KEY != 4))[None, None]
    with pytest.raises(BadMask, match="found 29 keys between 0 and 30 for query 0 of row 0"):
        masked_attention(q, k, v, holes, 0.2, 0.0)
    with pytest.raises(BadMask, match=r"found torch.float32"):
        masked_attention(q, k, v, holes.float(), 0.2, 0.0)
    with pytest.raises(NoGradient):
        mask = torch.from_numpy(MASKS["full"])[None, None]
        masked_attention(q.requires_grad_(), k, v, mask, 0.2, 0.0).sum().backward()
