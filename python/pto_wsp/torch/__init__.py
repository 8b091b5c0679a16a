"""PyTorch: workloads as operators of `torch.library`, and ragged attention for transformers.

Needs torch (`pip install 'pto-wsp[torch]'`); `import pto_wsp` does not load it.
"""

from pto_wsp.torch.custom_op import CustomOp, custom_op

__all__ = ["CustomOp", "custom_op"]
