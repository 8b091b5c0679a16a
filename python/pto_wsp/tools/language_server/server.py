"""The server: errors while typing, and what a word means."""

from __future__ import annotations

# pyright: reportMissingImports=false
from threading import Lock, Timer
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from pto_wsp.tools.language_server.checking import MENTIONS, check_python, check_text, prove_document
from pto_wsp.tools.language_server.hovering import hover, word_at
from pto_wsp.tools.language_server.remarks import Remark

PAUSE_S = 0.3
"""A document is checked when it has not changed for so long."""

WHOLE_LINE = 1 << 16


def make_server() -> LanguageServer:
    """Return the server; `start_io` runs it."""
    server: Any = LanguageServer("pto-wsp", "0.1")
    checker = Checker(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        checker.check_later(params.text_document.uri, 0.0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        checker.check_later(params.text_document.uri, PAUSE_S)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        checker.forget(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(params: types.HoverParams) -> types.Hover | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        if params.position.line >= len(document.lines):
            return None
        line, column = document.lines[params.position.line], params.position.character
        text = hover(word_at(line, column), _is_text(document.uri))
        proof = checker.proof_at(document.uri, params.position.line + 1)
        text = "\n\n".join(part for part in (proof, text) if part) or None
        kind = types.MarkupKind.Markdown
        return None if text is None else types.Hover(types.MarkupContent(kind, text))

    return server


def _is_text(uri: str) -> bool:
    return uri.endswith(".pto")


class Checker:
    """Checks documents when they have not changed for a while, one check of a document at a time."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._lock = Lock()
        self._timers: dict[str, Timer] = {}
        self._proofs: dict[str, list[Remark]] = {}

    def check_later(self, uri: str, pause_s: float) -> None:
        """Check a document after a pause; a later call replaces an earlier one."""
        timer = Timer(pause_s, self._check, [uri])
        timer.daemon = True
        with self._lock:
            before = self._timers.pop(uri, None)
            self._timers[uri] = timer
        if before is not None:
            before.cancel()
        timer.start()

    def proof_at(self, uri: str, line: int) -> str:
        """Return what the last check of a document proved about the `P` loop of a line, counted from 1."""
        with self._lock:
            found = self._proofs.get(uri, [])
        return "\n\n".join(remark.message for remark in found if remark.line == line)

    def forget(self, uri: str) -> None:
        """Show nothing of a document that was closed."""
        with self._lock:
            timer = self._timers.pop(uri, None)
            self._proofs.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self._publish(uri, None, [])

    def _check(self, uri: str) -> None:
        document = self._server.workspace.get_text_document(uri)
        version, text = document.version, document.source
        found = (check_text if _is_text(uri) else check_python)(document.path, text)
        if self._server.workspace.get_text_document(uri).version == version:
            self._publish(uri, version, found)
            proofs = prove_document(document.path, text) if MENTIONS in text or _is_text(uri) else []
            with self._lock:
                self._proofs[uri] = proofs

    def _publish(self, uri: str, version: int | None, found: list[Remark]) -> None:
        shown = [_diagnostic(remark) for remark in found]
        params = types.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=shown)
        self._server.text_document_publish_diagnostics(params)


def _diagnostic(remark: Remark) -> types.Diagnostic:
    start = max(remark.col - 1, 0)
    end = remark.end_col - 1 if remark.col and remark.end_col > remark.col else WHOLE_LINE
    severity = types.DiagnosticSeverity.Error if remark.is_error else types.DiagnosticSeverity.Information
    return types.Diagnostic(
        range=types.Range(types.Position(remark.line - 1, start), types.Position(remark.line - 1, end)),
        message=remark.message,
        severity=severity,
        code=remark.code,
        source="pto-wsp",
    )
