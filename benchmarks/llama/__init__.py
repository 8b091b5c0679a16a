"""A decoder layer of LLaMA-7B, with weights in f32 and in bf16."""
