"""Deps: which tasks wait for each other."""

from __future__ import annotations

from pto_wsp.ir.schedule import Directive
from pto_wsp.support.record import record


class Deps(Directive):
    """Which tasks wait for each other. Edges of `after=` and the order of `P.seq` hold under every one."""

    kind, place = "deps", 90

    @staticmethod
    def infer_tensor_map_exact() -> Deps:
        """Those whose regions share an element that one of them writes. The default."""
        return ExactDeps()

    @staticmethod
    def infer_bytes_overlap() -> Deps:
        """Those whose regions lie in ranges of bytes that overlap: extra waits, the same results."""
        return ByteDeps()

    @staticmethod
    def hybrid() -> Deps:
        """As `infer_tensor_map_exact`, with the edges of `after=` beside them."""
        return HybridDeps()

    @staticmethod
    def explicit(unchecked: bool = False) -> Deps:
        """Those that `after=` names, and those of different iterations of a `P.seq` loop; no others.

        A run raises EdgesMissing unless these order every two tasks that share an element which one of them
        writes. With `unchecked`, nothing checks that, and results may be anything.
        """
        return UncheckedDeps() if unchecked else ExplicitDeps()

    @staticmethod
    def trust() -> Deps:
        """As `infer_tensor_map_exact`, but iterations of one P loop never wait for each other.

        Results are right where what P states is true, which `check="hazards"` finds out.
        """
        return TrustedDeps()


@record
class ExactDeps(Deps):
    """Tasks wait for each other where their regions share an element."""

    name, is_initial = "infer_tensor_map_exact", True
    effect = "test_only_regions_that_share_an_element_wait"


@record
class ByteDeps(Deps):
    """Tasks wait for each other where the bounds of their regions overlap."""

    name, settings = "infer_bytes_overlap", {"deps": "BYTES"}
    effect = "test_only_regions_that_share_an_element_wait"


@record
class HybridDeps(Deps):
    """As `infer_tensor_map_exact`, and for the edges of `after=`."""

    name = "hybrid"
    effect = "test_only_regions_that_share_an_element_wait"


@record
class ExplicitDeps(Deps):
    """Tasks wait for edges and `P.seq` alone; a check finds out whether these suffice."""

    name, settings = "explicit", {"deps": "NONE", "checks_edges": True}
    effect = "test_edges_that_are_missing_are_named"


@record
class UncheckedDeps(Deps):
    """As `explicit`, without the check."""

    name, settings = "explicit_unchecked", {"deps": "NONE"}
    effect = "test_without_edges_nothing_waits"


@record
class TrustedDeps(Deps):
    """As `infer_tensor_map_exact`, but iterations of a P loop do not wait for each other."""

    name, settings = "trust", {"deps": "TRUST"}
    effect = "test_iterations_that_are_trusted_do_not_wait"


DIRECTIVES = (ExactDeps, ByteDeps, HybridDeps, ExplicitDeps, UncheckedDeps, TrustedDeps)
