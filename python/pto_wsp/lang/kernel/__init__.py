"""`@kernel`, `@ptoisa_kernel` and `pto`: functions on tiles, parsed from their source."""
