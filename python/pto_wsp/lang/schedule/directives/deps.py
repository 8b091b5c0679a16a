"""Deps: which tasks wait for each other."""

from __future__ import annotations

from pto_wsp.errors import WrongValue
from pto_wsp.ir.schedule import Directive, policy
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

_WAITS = "test_tasks_wait_as_deps_says"


@record
class Deps(Directive):
    """Which tasks wait for each other. Edges of `after=` and the order of `P.seq` always hold."""

    kind, place = "deps", 90
    name: str

    @policy(effect=_WAITS)
    def infer_tensor_map_exact(self) -> Deps:
        """Tasks wait for each other where their regions share an element that one of them writes."""
        return self

    @policy(settings={"deps": "BYTES"}, effect=_WAITS)
    def infer_bytes_overlap(self) -> Deps:
        """Tasks wait for each other where the bounds of their regions overlap."""
        return self

    @policy(settings={"waits": "SYMBOLIC"}, effect="test_symbolic_waits_order_tasks")
    def symbolic(self) -> Deps:
        """As `infer_tensor_map_exact`, by waits that follow from loop indices.

        Hazard maps order the tensors for which such waits would run a loop in sequence. Programs with
        `P.seq` loops of several units inside `P`, traced runs and runs under other policies use hazard maps
        for all tensors.
        `program.stats.is_symbolic` tells, and `program.stats.why_not_symbolic` says why.
        """
        return self

    @policy(effect=_WAITS)
    def hybrid(self) -> Deps:
        """As `infer_tensor_map_exact`, and for the edges of `after=`."""
        return self

    @policy(settings={"deps": "NONE", "checks_edges": True}, effect="test_edges_that_are_missing_are_named")
    def explicit(self, unchecked: bool = False) -> Deps:
        """Tasks wait for edges and `P.seq` alone; it is checked that these suffice.

        A run raises EdgesMissing unless these order every two tasks that share an element which one of them
        writes. With `unchecked`, nothing checks that, and results may be anything.

        Raises:
            WrongValue: `unchecked` is not a bool.
        """
        if not isinstance(unchecked, bool):
            found = repr(unchecked)
            raise WrongValue(name="unchecked", expected="True or False", found=found, loc=caller_location())
        return Deps("explicit_unchecked") if unchecked else self

    @policy(settings={"deps": "NONE"}, effect=_WAITS)
    def _explicit_unchecked(self) -> Deps:
        """As `explicit`, without the check."""
        return self

    @policy(settings={"deps": "TRUST"}, effect=_WAITS)
    def trust(self) -> Deps:
        """As `infer_tensor_map_exact`, but iterations of a P loop do not wait for each other.

        Results are right where what P states is true, which `check="hazards"` finds out.
        """
        return self
