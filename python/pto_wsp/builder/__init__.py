"""The function builder: PTO programs written as chains of calls.

It makes the IR that `@kernel` and `@workload` make. What reads programs from elsewhere can drive it too:
`PTOFunctionBuilder.at` gives the places, and every operand can be an expression of the IR.
"""

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.module import PTOModule
from pto_wsp.builder.names import CompareMode, ElementType, MemorySpace

__all__ = ["CompareMode", "ElementType", "MemorySpace", "PTOFunctionBuilder", "PTOModule"]
