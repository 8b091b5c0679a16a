"""`attn_implementation="pto_wsp"` in models of transformers: logits and tokens of eager attention."""

from __future__ import annotations

from typing import Any

import pytest

from pto_wsp.errors import BadMask

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from pto_wsp.torch.transformers import NAME, attention_forward  # noqa: E402

SIZES = {
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
}
MODELS = {
    "Llama": {},
    "Qwen3": {},
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    "Mistral": {"sliding_window": 8},
    "Gemma2": {"sliding_window": 8, "attn_logit_softcapping": 20.0},
}


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def padded_batch() -> dict[str, Any]:
    """Three requests of 37, 17 and 32 tokens, padded to the left."""
    ids = torch.randint(1, 300, (3, 37), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, :20] = 0
    mask[2, :5] = 0
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def both(model: Any, run: Any) -> tuple[Any, Any]:
    """What `run` returns with eager attention and with ours."""
    model.set_attn_implementation("eager")
    expected = run()
    model.set_attn_implementation(NAME)
    return expected, run()


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_tokens_are_those_of_eager(name: str) -> None:
    model, batch = model_of(name), padded_batch()
    is_token = batch["attention_mask"].bool()
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    expected, found = both(model, lambda: model(**batch, position_ids=positions).logits)
    assert (expected - found)[is_token].abs().max() < 1e-4
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected, found = both(model, lambda: model.generate(**batch, **options))
    assert torch.equal(expected, found)


def test_requests_are_those_of_their_own() -> None:
    """Padding has no influence: each request of a batch has the logits that it has alone."""
    model, batch = model_of("Llama"), padded_batch()
    model.set_attn_implementation(NAME)
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        together = model(**batch, position_ids=positions).logits
        for b, length in enumerate((37, 17, 32)):
            alone = model(batch["input_ids"][b : b + 1, -length:]).logits
            assert torch.allclose(together[b, -length:], alone[0], atol=1e-5)


def test_an_encoder_is_bidirectional() -> None:
    torch.manual_seed(0)
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "intermediate_size")}
    config = transformers.BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=4)
    model, batch = transformers.BertModel(config).eval(), padded_batch()
    expected, found = both(model, lambda: model(**batch).last_hidden_state)
    is_token = batch["attention_mask"].bool()
    assert (expected - found)[is_token].abs().max() < 1e-4


def test_a_model_compiles_in_one_graph() -> None:
    model, batch = model_of("Llama"), padded_batch()
    ids = batch["input_ids"]
    model.set_attn_implementation(NAME)
    with torch.no_grad():
        compiled = torch.compile(
            lambda ids: model(ids, use_cache=False).logits, fullgraph=True, backend="aot_eager"
        )
        assert torch.allclose(compiled(ids), model(ids).logits, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"dropout": 0.1}, {"s_aux": torch.zeros(4)}, {"position_bias": torch.zeros(1)}]
)
def test_what_would_change_the_result_is_refused(options: dict[str, Any]) -> None:
    q, k = torch.zeros(1, 4, 3, 16), torch.zeros(1, 2, 3, 16)
    with pytest.raises(BadMask, match=next(iter(options)).replace("_", ".")):
        attention_forward(torch.nn.Module(), q, k, k, None, **options)
