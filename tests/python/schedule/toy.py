"""A directive in one file: a key says which dispatcher expands a task, in a window of so many tasks."""

from __future__ import annotations

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Binary, Const, Expr
from pto_wsp.ir.schedule import Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record


@record
class Toy(Directive):
    """What a toy does."""

    kind, place, mark = "toy", 25, "KEY"
    name: str
    key: Expr | None = None
    n: int = 0

    @policy(effect="test_a_directive_is_one_file")
    def asleep(self) -> Toy:
        """Nothing."""
        return self

    @policy(
        Key(),
        Count(1, 9),
        settings={"ownership": "KEY", "dispatchers": 2},
        refused={"interp": "it has no toys"},
        effect="test_a_directive_is_one_file",
    )
    def odd(self, key: KeyFunction, n: int) -> Toy:
        """Tasks with odd keys go to dispatcher 1, others to 0, in a window of n tasks."""
        return directed(self, key=key, n=n)

    def engine_settings(self) -> Settings:
        """Return the dispatchers and the window."""
        return {**self.policy.settings, "window": self.n}

    def engine_keys(self, kernel: KernelFunction) -> tuple[Expr, ...]:
        """Return whether the key is odd."""
        return tuple(Binary("mod", key, Const(2)) for key in self.key_exprs)
