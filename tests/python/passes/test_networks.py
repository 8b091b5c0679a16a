"""Passes keep what networks compute, and how they end."""

import numpy as np
from hypothesis import given

from pto_wsp import compile_module
from pto_wsp.passes.pipeline import PASSES, parse_pipeline, run_pipeline
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import random_network
from tests.python.runtime.test_networks import outcome


@tries(40)
@given(DRAWS)
def test_passes_keep_networks(draw: Draw) -> None:
    module = random_network(draw)
    text, arrays = outcome(compile_module(module, "interp"), module, 1, 0)
    for name in PASSES.keys() - {"canonical"}:  # which renames parameters
        made = run_pipeline(module, parse_pipeline(name))
        found, others = outcome(compile_module(made, "interp"), made, 1, 0)
        assert found == text, name
        assert all(np.array_equal(a, b) for a, b in zip(arrays, others, strict=True)), name
