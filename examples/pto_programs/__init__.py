"""Programs of the PTO function builder: softmax, batched matrix products and a LLaMA layer."""
