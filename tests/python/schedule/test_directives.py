"""Directives: all of a directive follows from its one file, and each has a test that proves its effect."""

from __future__ import annotations

import ast
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from docs.build import exclusions, policies_page
from docs.editor_grammar import editor_grammar
from pto_wsp import Schedule, _native, parse
from pto_wsp.errors import InvalidIR, UnsupportedByTarget, WrongValue
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import TaskIndex, TaskKernel
from pto_wsp.ir.schedule import Directive, Directives, Stage
from pto_wsp.ir.verify import verify
from pto_wsp.lang.schedule.registry import CONFLICTS, DIRECTIVES
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.options import run_options
from pto_wsp.support.record import replace
from pto_wsp.targets.base import Refused
from pto_wsp.targets.cuda.order import TaskOrder, says_which_block
from pto_wsp.targets.schedules import require_support, support
from tests.python.lower.test_lower_workload_to_bytecode import lower
from tests.python.schedule.steps import CORES, SHAPE, STEPS, counter
from tests.python.schedule.toy import Toy

POLICIES = [(kind, policy) for kind in DIRECTIVES.values() for policy in kind.policies.values()]


def sample(kind: type[Directive], name: str) -> Directive:
    index = TaskIndex("i")
    values = {"key": index, "keys": (index, TaskKernel()), "n": 3, "bounds": (4, 9)}
    values["stages"] = (Stage(("cube",), 1), Stage(("vector", "bump"), 2))
    return kind(name, **{p.field: values[p.field] for p in kind.policies[name].takes})


def test_a_directive_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python, text, verifier, printer, targets, engine, page and editor know a directive from its file."""
    monkeypatch.setitem(DIRECTIVES, "toy", Toy)
    scheduled = Schedule().having(toy=Toy.odd(lambda t: t.i, 4))
    assert repr(scheduled) == "<Schedule: toy = odd(%t.i, n = 4)>"
    module = STEPS.module.with_schedule(scheduled.policies)
    assert parse(str(module)).schedule == scheduled.policies
    with pytest.raises(WrongValue, match="odd's n"):
        Toy.odd(lambda t: t.i, 10)
    for wrong in (Toy("odd", TaskIndex("i"), 10), Toy("odd"), Toy("asleep", n=1), Toy("even")):
        with pytest.raises(InvalidIR):
            verify(module.with_schedule(Directives([wrong])))
    STEPS.reschedule(scheduled)
    STEPS.run(X=np.zeros(SHAPE, np.float32), Z=np.zeros((1, 8), np.float32), workers=2, trace=True)
    assert STEPS.trace is not None and counter("max_recorded") <= 4
    assert all(e.dispatcher == e.keys[0] % 2 for e in STEPS.trace if len(e.keys) == 2)
    assert "| `odd(key, n)` | Tasks with odd keys" in policies_page() and "it has no toys" in policies_page()
    assert "asleep" in editor_grammar()
    with pytest.raises(UnsupportedByTarget, match="it has no toys"):
        compile_module(module, "interp")


def test_every_policy_names_a_test_of_its_effect() -> None:
    functions = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    missing = [(kind.kind, policy.name) for kind, policy in POLICIES if policy.effect not in functions]
    assert not missing


@pytest.mark.parametrize("kind", DIRECTIVES.values(), ids=lambda kind: kind.kind)
def test_nothing_that_a_schedule_says_is_ignored(kind: type[Directive]) -> None:
    """Every directive but the default, and each of its parameters, changes what the engine gets."""
    others = {"key": TaskKernel(), "keys": (TaskIndex("i"),), "n": 2, "bounds": (5, 9)}
    others["stages"] = (Stage(("cube",), 1), Stage(("vector",), 2))
    for policy in kind.policies.values():
        directive = sample(kind, policy.name)
        is_default = directive == kind.default() or policy.name == "hybrid"
        assert (told(directive) == told(kind.default())) == is_default
        for parameter in policy.takes:
            changed = replace(directive, **{parameter.field: others[parameter.field]})
            assert told(changed) != told(directive), (policy.name, parameter)


def told(directive: Directive) -> tuple[object, ...]:
    """Return what the engine gets for a directive: options, bytecode and what to record."""
    module = CORES.module.with_schedule(Directives([directive]))
    options = run_options(module.schedule)
    names = [name for name in dir(_native.RunOptions) if not name.startswith("_")]
    level = directive.name if directive.kind == "trace" else ""
    return level, [getattr(options, name) for name in names], lower(module).code


def test_kinds_have_places_and_conflicts_have_names() -> None:
    places = [kind.place for kind in DIRECTIVES.values()]
    assert all(a < b for a, b in pairwise(places))
    known = {f"{kind.kind} = {policy.name}" for kind, policy in POLICIES}
    assert {name for pair in CONFLICTS for name in pair} <= known


def test_the_page_lists_what_is_refused_together() -> None:
    """Two policies are refused together exactly where the page says so."""
    excluded = exclusions()
    assert all(
        f"| `{one}` | `{'`, `'.join(others)}` |" in policies_page() for one, others in excluded.items()
    )
    every = [sample(kind, policy.name) for kind, policy in POLICIES]
    for one, two in combinations(every, 2):
        if one.kind == two.kind or kind_default(one) or kind_default(two):
            continue
        pairs = ((one, two), (two, one))
        is_listed = any({b.title, b.kind} & {*excluded.get(a.title, ())} for a, b in pairs)
        refused = is_refused("cpu", one, two)
        assert refused == is_listed, (one.title, two.title)
        if not any(isinstance(support("cuda", d.policy), Refused) for d in (one, two)):
            assert is_refused("cuda", one, two) == (says_which_block(one) and says_which_block(two))


def kind_default(directive: Directive) -> bool:
    return directive == directive.default()


def is_refused(target: str, *directives: Directive) -> bool:
    module = CORES.module.with_schedule(Directives(directives))
    try:
        require_support(target, module)
        if target == "cuda":
            TaskOrder(module, target)
    except UnsupportedByTarget as error:
        return error.fields["reason"] != "its key follows no loop, so no iteration ends the flight of a key"
    return False


def test_the_order_of_a_list_does_not_matter() -> None:
    chosen = [sample(kind, [*kind.policies][-1]) for kind in DIRECTIVES.values()]
    one, two = Directives(chosen), Directives(reversed(chosen))
    assert one == two and hash(one) == hash(two)
    assert str(Module("m", schedule=one)) == str(Module("m", schedule=two))
    assert parse(str(Module("m", schedule=one))).schedule == one
