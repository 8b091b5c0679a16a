"""Language models of the family of LLaMA: real weights, quantised, batched continuously."""
