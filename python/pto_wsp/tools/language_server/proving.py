"""What is proved about the `P` loops of a document, for the line that the cursor is in."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.errors import PtoError
from pto_wsp.ir.module import Module
from pto_wsp.prove.finding import INDEPENDENT, PROVED, Finding
from pto_wsp.prove.prove import prove
from pto_wsp.tools.language_server.remarks import PROOF, Remark


def proofs(module: Module, path: str) -> Iterator[Remark]:
    """Yield the answer for each `P` loop of a verified module that is written in `path`.

    Nothing is yielded without islpy, and for modules that cannot be proved as a whole.
    """
    try:
        findings = prove(module).findings
    except PtoError:
        return
    for finding in findings:
        place = finding.loc
        if finding.claim == INDEPENDENT and place is not None and place.file == path:
            yield Remark(place.line, place.col, place.end_col, PROOF, _text(finding), is_error=False)


def _text(finding: Finding) -> str:
    lines = [f"**{finding.status}**: {finding.head}"]
    if finding.status == PROVED:
        return lines[0] + (f", given {' and '.join(finding.given)}" if finding.given else "")
    if finding.reason:
        lines.append(finding.reason)
    if finding.counter is not None:
        lines += ["", "```text", *finding.counter.lines(), "```"]
    if finding.assume:
        lines += ["", f"State {finding.advice}."]
    return "\n".join(lines)
