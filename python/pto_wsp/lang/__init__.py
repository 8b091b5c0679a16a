"""What a user writes: tensors, axes, `@kernel`, `pto.*`, `@workload` and `P`."""
