"""One kernel as functions: of a core, or of a caller and the cores of its phases."""

from __future__ import annotations

from collections.abc import Collection

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import Instr, KernelFunction, walk_statements
from pto_wsp.support.record import record
from pto_wsp.targets.ascend.caller import CallerCode
from pto_wsp.targets.ascend.core import CoreCode, write_code
from pto_wsp.targets.ascend.cube import CubeCode
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.group_by import write_group_by
from pto_wsp.targets.ascend.native import NativeCode, write_native
from pto_wsp.targets.ascend.rewrite import rewrite
from pto_wsp.targets.ascend.split import CUBE, VECTOR, Phase, split_cores
from pto_wsp.targets.ascend.templates import TEMPLATES, Unsupported
from pto_wsp.targets.ascend.vector import VectorCode
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.group_by import is_group_by


@record
class Part:
    """A function of one kind of core."""

    phase: Phase
    code: CoreCode | NativeCode

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of each memory of the core that it uses; nothing is known of C++."""
        if isinstance(self.code, NativeCode):
            return {}
        if isinstance(self.code, CubeCode):
            places = self.code.memory
            return {"l1_bytes": places.l1_bytes, "l0c_bytes": places.l0c_bytes}
        assert isinstance(self.code, VectorCode)
        return {"ub_bytes": self.code.memory.total_bytes}

    @property
    def has_elements(self) -> bool:
        """Whether the scalar unit reads or writes elements of tiles."""
        return isinstance(self.code, VectorCode) and self.code.has_elements


@record
class AscendKernel:
    """A written kernel.

    Attributes:
        kernel: as it was given.
        parts: functions of cores, in the order of their numbers in the caller.
        caller: the function that calls them; None for a kernel of one kind of core.
    """

    kernel: KernelFunction
    parts: tuple[Part, ...]
    caller: CallerCode | None

    @property
    def checks(self) -> list[Check]:
        """The run-time checks; number n is at index n - 1."""
        return self.caller.checks if self.caller else self.parts[0].code.checks


def write_kernel(kernel: KernelFunction, generation: Generation, taken: Collection[str] = ()) -> AscendKernel:
    """Return a written kernel.

    Args:
        kernel: what is written.
        generation: what it is written for.
        taken: names that its phases must not have.

    Raises:
        NoneKernelBody: it is only declared.
        TilesTooLarge: its tiles do not fit the memories of a core.
        UnsupportedByTarget: it holds what the generation refuses.
    """
    if is_group_by(kernel):
        return AscendKernel(kernel, (Part(Phase(kernel, VECTOR), write_group_by(kernel)),), None)
    if kernel.native is not None:
        part = Part(Phase(kernel, kernel.unit), write_native(kernel, generation))
        return AscendKernel(kernel, (part,), None)
    _require_templates(kernel, generation)
    split = split_cores(rewrite(kernel, generation), taken)
    kinds = [CubeCode if phase.core == CUBE else VectorCode for phase in split.phases]
    codes = [write_code(kind, p.kernel, generation) for kind, p in zip(kinds, split.phases, strict=True)]
    tight = frozenset(name for code in codes if isinstance(code, CubeCode) for name in code.memory.tight)
    checks = [code.checks for code in codes]
    caller = CallerCode(split, generation, tight, checks) if split.caller else None
    if caller:
        caller.write()
    return AscendKernel(kernel, tuple(map(Part, split.phases, codes)), caller)


def _require_templates(kernel: KernelFunction, generation: Generation) -> None:
    """Raise UnsupportedByTarget for the first instruction that has no calls."""
    for stmt in walk_statements(kernel.body or ()):
        template = TEMPLATES[stmt.op] if isinstance(stmt, Instr) else None
        if isinstance(stmt, Instr) and isinstance(template, Unsupported):
            what, reason = f"`{stmt.op}`", template.reason
            raise UnsupportedByTarget(target=generation.name, what=what, reason=reason, loc=stmt.loc)
