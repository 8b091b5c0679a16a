"""The language server of editors: `pto lsp` (Language Server Protocol over standard input and output)."""
