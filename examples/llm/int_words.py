"""Matrices of folders that AWQ or GPTQ quantised: the settings that these programs have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from examples.llm.config import UnknownModel
from examples.llm.storage import Matrix
from pto_wsp.types.int_words import UnknownWords, from_awq, from_gptq

PARTS = ("qweight", "qzeros", "scales", "g_idx")
"""Tensors of a quantised matrix, by the ends of their names."""

KNOWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "awq": {"bits": (4,), "version": ("gemm", "GEMM")},
    "gptq": {
        "bits": (4, 8), "checkpoint_format": ("gptq", "gptq_v2"), "dynamic": (None, {}),
        "pack_dtype": ("int32",), "quant_method": ("gptq",),
    },
}  # fmt: skip
"""Methods, their settings that change how tensors are read, and the values that these programs have."""


class WordReader:
    """Reads the matrices of a quantised folder.

    Args:
        settings: `quantization_config` of the folder.
        tensor: returns a tensor by its name, or None.

    Raises:
        UnknownModel: a method, or a setting, that these programs do not have.
    """

    def __init__(self, settings: dict[str, Any], tensor: Callable[[str], np.ndarray | None]) -> None:
        self._tensor = tensor
        self._method = settings.get("quant_method")
        if self._method not in KNOWN:
            expected = ", ".join(KNOWN)
            raise UnknownModel(
                f"quantisation: expected {expected}, found {self._method!r}; a GGUF file holds other formats"
            )
        for name, values in KNOWN[self._method].items():
            found = settings.get(name, values[0])
            if found not in values:
                raise UnknownModel(
                    f"quantisation by {self._method}: `{name}`: expected "
                    f"{' or '.join(map(str, values))}, found {found!r}"
                )
        self._bits = int(settings.get("bits", 4))
        self._is_second = settings.get("checkpoint_format") == "gptq_v2"

    def matrix(self, name: str) -> Matrix:
        """Return a matrix by the beginning of its tensors' names.

        Raises:
            UnknownModel: a tensor is missing, or the matrix has no numbers without loss.
        """
        words, zeros, scales, order = (self._tensor(f"{name}.{part}") for part in PARTS)
        if words is None or zeros is None or scales is None:
            raise UnknownModel(f"{name}: expected tensors qweight, qzeros and scales, found others")
        try:
            if self._method == "awq":
                return Matrix.of(from_awq(words, zeros, scales, self._bits))
            adds_one = not self._is_second
            return Matrix.of(from_gptq(words, zeros, scales, order, self._bits, adds_one=adds_one))
        except UnknownWords as error:
            raise UnknownModel(f"{name}: {error}") from error
