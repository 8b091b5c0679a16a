"""Programs for 64-bit ARM Linux, as sources that a cross compiler builds."""
