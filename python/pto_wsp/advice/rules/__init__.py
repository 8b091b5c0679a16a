"""One file per advice; `advice.registry` lists them."""
