"""Write the generated pages: `python -m docs.build`, or `--check` that they are up to date."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import performance_page
from docs.advice_table import advice_page
from docs.builder_stub import builder_stub
from docs.cookbook import cookbook_page
from docs.device_keys import simulation_page
from docs.editor_grammar import editor_grammar
from docs.examples_table import examples_page
from docs.figures import readme_page
from docs.kernel_python import kernel_python_page
from docs.style import COLUMNS
from pto_wsp.errors import PtoError, catalogue
from pto_wsp.ir.schedule import Directive, Directives, Policy
from pto_wsp.isa import TABLE, ErrorBound, Form, Instruction
from pto_wsp.isa.compositions import COMPOSITIONS, Composition
from pto_wsp.isa.refused import REFUSED
from pto_wsp.isa.statements import CONTROL, DEBUGGING, SCALARS, Statement
from pto_wsp.lang.kernel.help import SHAPES
from pto_wsp.lang.schedule.registry import DIRECTIVES, conflict
from pto_wsp.ops.functional import OPERATORS
from pto_wsp.targets.base import Enforced, Idle, Refused
from pto_wsp.targets.cuda.order import NAMES_BLOCKS
from pto_wsp.targets.registry import TARGETS
from pto_wsp.targets.schedules import support
from pto_wsp.tools.main import parser

DOCS = Path(__file__).parent
ERROR_PAGES = DOCS.parent / "tests" / "errors"
ERRORS_INTRODUCTION = """\
# Errors

Every error has a code, a class in `pto_wsp.errors` and a test. `tests/errors` runs the programs
below and compares the messages exactly. `[...]` matches text that depends on the machine. Handle an
error by its class. All classes are subclasses of `PtoError`, and `error.fields` holds the values in
the text. `pto_wsp.short_errors()` removes the frames of this package from tracebacks."""

OPERATORS_INTRODUCTION = """\
# Operators

Generated from `pto_wsp.ops.functional`. Its functions take and return arrays of any shape:
`from pto_wsp.ops import functional as F; y = F.gelu(x)`. Elements are f32, f16 or bf16. Every
function accepts `out=`. The first call for an element type compiles the operator's family. Other
shapes compile nothing. Arrays that are not row-major are copied, and so are arrays reduced along
another dimension than the last. `linear` transposes its weight in every call. Pack a constant
weight once with [`pto_wsp.ops.matmul`](matmul.md).

*Bound* is tested for f32: |y - exact| <= bound eps max(|exact|, s). s is 1, or the sum of the
absolute terms if many terms are added. With f16 and bf16 an operator computes in f32 and rounds its
result once. The mean or sum of a loss adds elements that are rounded.

`F.workload("gelu")` is the workload of an operator, for calls from another workload. Its tensors
have two dimensions. `F.modules(dtype)` returns all operators as IR.
`print(F.modules()[0])` prints `.pto` text, which `parse` reads."""

INSTRUCTIONS_INTRODUCTION = """\
# Instructions

Generated from the instruction table (`pto_wsp.isa.TABLE`). `pto.` is the name inside a kernel. An
instruction without one is written as an operator or with a scalar operand (`x * 2.0` is `muls`).
*Error* bounds the result against the meaning computed in f64: `exact`, a number of units in the
last place (ulp), or `sum`: (n / 8 + 4) eps sum |terms| over n added terms. f16 and bf16 compute in
f32 and round once per instruction. Only the valid part of a tile is read and written. `pto devices`
shows what instructions cost on a simulated device."""

AnyPolicy = Policy[..., Directive]

POLICIES_INTRODUCTION = """\
Generated from `pto_wsp.lang.schedule.directives`. A schedule has one policy of each kind; the first
of each table is the default. A target enforces a policy (*yes*), accepts it because it has no effect
there (*accepts*), or refuses it by name (*no*).
[Some policies exclude each other](#policies-that-exclude-each-other). [Schedules](schedules.md) is the
guide."""

SUPPORT_WORDS: dict[type, str] = {Enforced: "yes", Idle: "accepts", Refused: "no"}

INSTRUCTIONS_HEADER = [
    "| instruction | `pto.` | text | element types | error | meaning |",
    "|---|---|---|---|---|---|",
]


STATEMENTS_HEADER = ["| text | builder | meaning |", "|---|---|---|"]
REFUSED_HEADER = ["| instruction | what to write |", "|---|---|"]
COMPOSED_HEADER = ["| text | builder, `pto.` | `ptoisa.` | tiles | meaning |", "|---|---|---|---|---|"]
COMPOSED_INTRODUCTION = """\
A composition is one word for several rows of the tables above. A kernel contains only those rows,
so targets, passes and printers need no support for it. The destination is the first operand.
`tmov.fp` and `tstore.fp` accept `rmode`. `.pto` text accepts compositions in functions whose
parameters have no roles. There the form is `tstore.fp %src, %fp, %memref[row, col]`."""
REFUSED_INTRODUCTION = """\
These names of the PTO ISA are not instructions on tiles here. They are refused, with a replacement."""


def instructions_page() -> str:
    """Return the reference of the instruction table, grouped by operands and shape rule."""
    parts = [INSTRUCTIONS_INTRODUCTION]
    for form in Form:
        rows = [instruction_line(row) for row in TABLE.values() if row.form is form]
        parts.append(f"## {form.value[0]}\n\n{operands_of(form)}\n\n" + "\n".join(INSTRUCTIONS_HEADER + rows))
    for title, statements in (("scalars", SCALARS), ("control", CONTROL), ("debugging", DEBUGGING)):
        parts.append(
            f"## {title}\n\n" + "\n".join([*STATEMENTS_HEADER, *map(_statement_line, statements.items())])
        )
    composed = [_composition_line(composition) for composition in COMPOSITIONS.values()]
    parts.append("\n".join(["## compositions", "", COMPOSED_INTRODUCTION, "", *COMPOSED_HEADER, *composed]))
    refused = [f"| `{name}` | {advice} |" for name, advice in REFUSED.items()]
    parts.append("\n".join(["## written otherwise", "", REFUSED_INTRODUCTION, "", *REFUSED_HEADER, *refused]))
    return "\n\n".join(parts) + "\n"


def _composition_line(composition: Composition) -> str:
    function = f"T{composition.name.upper()}"
    operands = ", ".join(f"`{name}`" for name in composition.operands)
    cells = (f"`{composition.mnemonic}`", f"`{composition.name}`", f"`{function}`", operands, composition.doc)
    return f"| {' | '.join(cells)} |"


def _statement_line(item: tuple[str, Statement]) -> str:
    word, statement = item
    method = f"`{statement.method}`" if statement.method else ""
    return f"| `{word}` | {method} | {statement.doc} |"


def operands_of(form: Form) -> str:
    """Return the operand counts and shapes of a form."""
    counts = [(form.num_tiles, "tile"), (form.num_scalars, "scalar")]
    named = [f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in counts if count]
    shapes = f" Shapes: {SHAPES[form][0]}." if form in SHAPES else ""
    return textwrap.fill(f"Operands: {' and '.join(named) or 'a view'}.{shapes}", COLUMNS)


def instruction_line(row: Instruction) -> str:
    """Return one line of an instruction table."""
    dtypes = " ".join(sorted(map(str, row.dtypes)))
    function = f"`{row.function}`" if row.function else ""
    cells = (row.name, function, f"`{row.mnemonic}`", dtypes, bound_text(row.bound), row.doc)
    return f"| {' | '.join(cells)} |"


def bound_text(bound: ErrorBound) -> str:
    """Return an error bound as the page writes it."""
    return f"{bound.amount:g} ulp" if bound.kind == "ulp" else bound.kind


def operators_page() -> str:
    """Return the reference of the operator library, grouped by file."""
    parts = [OPERATORS_INTRODUCTION]
    families: dict[str, list[str]] = {}
    for name, operator in OPERATORS.items():
        parameters = ", ".join(p.replace("'", '"') for p in _parameters(operator.function))
        bound = f"{operator.bound:g}" if operator.bound else "exact"
        family = operator.function.__module__.rsplit(".", 1)[-1]
        line = f"| `{name}({parameters})` | {operator.formula.replace('|', chr(92) + '|')} | {bound} |"
        families.setdefault(family, []).append(line)
    for family, lines in families.items():
        header = ["| operator | computes | bound |", "|---|---|---|"]
        parts.append(f"## {family}\n\n" + "\n".join(header + lines))
    return "\n\n".join(parts) + "\n"


def _parameters(function: Callable[..., object]) -> list[str]:
    """Return the parameters of an operator without their types; all have `out=` too."""
    found = inspect.signature(function).parameters.values()
    return [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in found if p.name != "out"]


def errors_page() -> str:
    """Return the catalogue of errors: every class, with the page that its test reads."""
    families: dict[type[PtoError], list[type[PtoError]]] = {}
    for cls in catalogue():
        families.setdefault(family_of(cls), []).append(cls)
    parts = [ERRORS_INTRODUCTION]
    for family, members in families.items():
        about = without_fields(family)
        about = "\n\n".join(textwrap.fill(part, COLUMNS) for part in about.split("\n\n"))
        parts.append(f"## {family.__name__}\n\n{about}")
        parts += [error_chapter(cls) for cls in members]
    return "\n\n".join(parts) + "\n"


def family_of(cls: type[PtoError]) -> type[PtoError]:
    """Return the class that groups an error: its nearest base without a code of its own."""
    return next(base for base in cls.__mro__[1:] if base is PtoError or "code" not in base.__dict__)


def without_fields(cls: type[PtoError]) -> str:
    """Return the docstring of an error without its arguments and attributes."""
    return re.split(r"\n\n(?:Args|Attributes):", inspect.getdoc(cls) or "")[0]


def error_chapter(cls: type[PtoError]) -> str:
    """Return the chapter of one error, from its class and its tested page."""
    page = (ERROR_PAGES / f"{cls.code}.md").read_text(encoding="utf-8").strip()
    body = re.sub(r"\A# .*\n+", "", page)
    meaning = " ".join(without_fields(cls).split())
    about = textwrap.fill(f"`{cls.__name__}`: {meaning}", COLUMNS)
    return f"### {cls.code}\n\n{about}\n\n{body}"


def policies_page() -> str:
    """Return the page of policies: what each does, and what every target makes of it."""
    every = [policy for directive in DIRECTIVES.values() for policy in directive.policies.values()]
    takes = {t for t in TARGETS if any(not isinstance(support(t, policy), Refused) for policy in every)}
    shown = [target for target in TARGETS if target in takes]
    others = [f"`{target}` takes no policy." for target in TARGETS if target not in takes]
    parts = [textwrap.fill(" ".join([POLICIES_INTRODUCTION, *others]), COLUMNS)]
    header = "| policy | meaning | " + " | ".join(f"`{target}`" for target in shown) + " |"
    rule = "|---|---|" + "---|" * len(shown)
    for kind, directive in DIRECTIVES.items():
        policies = list(directive.policies.values())
        lines = [header, rule, *(policy_line(policy, shown) for policy in policies)]
        parts.append("\n\n".join([f"## {kind}", str(inspect.getdoc(directive)), "\n".join(lines)]))
        if reasons := refusals(shown, policies):
            parts.append(f"Refused:\n\n{refusal_lines(reasons)}")
    parts.append(exclusions_chapter())
    return "# Policies\n\n" + "\n\n".join(parts) + "\n"


EXCLUSIONS_INTRODUCTION = """\
A schedule with both policies of a row is refused by every target that enforces them. A kind alone
means each of its policies other than the default."""


def exclusions() -> dict[str, list[str]]:
    """Return per policy the policies that exclude it, and the kinds of which all but the default do."""
    found: dict[str, list[str]] = {}
    every = [kind(name) for kind in DIRECTIVES.values() for name in kind.policies]
    for one in every:
        others = [o for o in every if o.kind != one.kind and conflict(one, Directives([o]))]
        for kind in DIRECTIVES.values():
            chosen = [o for o in others if o.kind == kind.kind]
            is_whole = len(chosen) == len(kind.policies) - 1
            if names := [kind.kind] if is_whole else [o.title for o in chosen]:
                found.setdefault(one.title, []).extend(names)
    return found


def exclusions_chapter() -> str:
    """Return the chapter on policies that exclude each other."""
    header = ["| policy | is refused together with |", "|---|---|"]
    lines = [
        f"| `{one}` | {', '.join(f'`{other}`' for other in others)} |" for one, others in exclusions().items()
    ]
    kinds = ", ".join(f"`{kind}`" for kind in DIRECTIVES if kind in NAMES_BLOCKS)
    on_cuda = (
        f"On `cuda`, one of {kinds} at most is other than the default: each says which block runs a task."
    )
    parts = ("## Policies that exclude each other", EXCLUSIONS_INTRODUCTION, "\n".join(header + lines))
    return "\n\n".join([*parts, textwrap.fill(on_cuda, COLUMNS)])


def refusals(targets: Sequence[str], policies: Sequence[AnyPolicy]) -> dict[str, dict[str, list[str]]]:
    """Return why targets refuse policies: per reason and target the names of the policies."""
    found: dict[str, dict[str, list[str]]] = {}
    for target in targets:
        for policy in policies:
            match support(target, policy):
                case Refused(reason=reason):
                    found.setdefault(reason, {}).setdefault(target, []).append(policy.name)
    return found


def refusal_lines(reasons: dict[str, dict[str, list[str]]]) -> str:
    """Return a line per reason; policies are named where a target has more than one reason."""
    several = Counter(target for by_target in reasons.values() for target in by_target)
    lines = []
    for reason, by_target in reasons.items():
        who = [
            f"`{target}` ({', '.join(f'`{name}`' for name in names)})"
            if several[target] > 1
            else f"`{target}`"
            for target, names in by_target.items()
        ]
        line = f"- {', '.join(who)}: {reason}"
        lines.append(textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines)


def policy_line(policy: AnyPolicy, targets: Sequence[str]) -> str:
    """Return one line of a table of policies."""
    arguments = ", ".join(parameter.field for parameter in policy.takes)
    shown = f"`{policy.name}({arguments})`" if arguments else f"`{policy.name}`"
    cells = [SUPPORT_WORDS[type(support(target, policy))] for target in targets]
    return f"| {' | '.join([shown, policy.meaning, *cells])} |"


COMMAND_INTRODUCTION = """\
# The `pto` command

`pto` reads, checks, changes, compiles and runs programs in [`.pto` text](pto_text.md), without
Python code. A file named `-` is standard input or standard output. Only `pto run` compiles and runs
programs. All other commands are safe on untrusted files.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | the program or its data are refused; the error is on standard error |
| 2 | the command line is refused |
| 141 | the reader of the output closed it |"""


def command_page() -> str:
    """Return the page of the command line, from its parser."""
    parts = [COMMAND_INTRODUCTION]
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [command_chapter(name, command) for name, command in action.choices.items()]
    return "\n\n".join(parts) + "\n"


def command_chapter(name: str, command: argparse.ArgumentParser) -> str:
    """Return the chapter of one command."""
    rows = [argument_line(action) for action in command._actions if action.dest != "help"]
    table = "\n".join(["| argument | |", "|---|---|", *rows]) if rows else ""
    notes = [note(text) for text in (command.epilog or "").split("\n\n") if text]
    chapter = (f"## pto {name}", str(command.description), table, *notes)
    return "\n\n".join(part for part in chapter if part)


def note(text: str) -> str:
    """Return a paragraph of the help of a command; examples keep their lines."""
    return f"```text\n{text}\n```" if text.startswith("example") else textwrap.fill(text, COLUMNS)


def argument_line(action: argparse.Action) -> str:
    """Return one line of a table of arguments."""
    metavar = str(action.metavar or "").replace("|", "\\|")
    name = ", ".join(f"{option} {metavar}".strip() for option in action.option_strings) or metavar
    return f"| `{name}` | {action.help} |"


PAGES: dict[str, Callable[[], str]] = {
    "advice.md": advice_page,
    "command.md": command_page,
    "../README.md": readme_page,
    "../examples/README.md": examples_page,
    "../editors/vscode/pto.tmLanguage.json": editor_grammar,
    "../python/pto_wsp/builder/instruction_methods.pyi": builder_stub,
    "cookbook.md": cookbook_page,
    "errors.md": errors_page,
    "instructions.md": instructions_page,
    "operators.md": operators_page,
    "performance.md": performance_page,
    "policies.md": policies_page,
    "python_in_kernels.md": kernel_python_page,
    "simulation.md": simulation_page,
}


def main() -> int:
    """Write or check every page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args().check
    stale = []
    for name, build in PAGES.items():
        path, text = DOCS / name, build()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if stale and check:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
