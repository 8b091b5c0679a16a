"""The language server: what is found in documents, and a session with a real client over standard streams."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from pto_wsp.tools.language_server.checking import check_python, check_text, prove_document
from pto_wsp.tools.language_server.hovering import hover, word_at
from pto_wsp.tools.language_server.remarks import Remark

GOOD = """\
import numpy as np
from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload

@kernel
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]]):
    pto.store(y, x * 2.0)

@workload
def scale_rows(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128]):
    for rows in P.tiles("n", 64):
        scale[rows](x=X[rows], y=Y[rows])

program = scale_rows.compile(target="cpu")
print("a document that is checked does not run")
x = np.ones((100, 128), np.float32)
program(X=x, Y=x)
assert program.stats.tasks == 2
raise SystemExit("not run")
"""
KERNEL = GOOD[GOOD.index("@kernel") : GOOD.index("@workload")]
TEXT = """\
// PTO Module: sample

func @rowmax(%x: memref<8x8xf32>) -> InCore {
}
"""


def only(found: list[Remark]) -> Remark:
    (remark,) = found
    return remark


def test_a_good_document_has_no_findings_and_is_not_run(tmp_path: Path) -> None:
    assert check_python(str(tmp_path / "good.py"), GOOD) == []


def test_deferred_annotations_hold_for_the_document(tmp_path: Path) -> None:
    text = "from __future__ import annotations\n" + GOOD.replace("64, 128, f32", "64, cols, f32").replace(
        "y: Out[Tile[64, cols, f32]])", "y: Out[Tile[64, cols, f32]], cols: Constexpr[int] = 128)"
    ).replace("import In", "import Constexpr, In")
    assert check_python(str(tmp_path / "good.py"), text) == []


def test_documents_of_others_are_not_checked() -> None:
    assert check_python("other.py", "raise SystemExit\nfrom nowhere import x") == []


@pytest.mark.parametrize(
    "before, after, line, code",
    [
        ("pto.store(y, x * 2.0)", "pto.store(y, x * z)", 6, "unknown-name"),
        ("pto.store(y, x * 2.0)", "pto.store(y, pto.softmax(x))", 6, "unknown-instruction"),
        ("pto.store(y, x * 2.0)", "pass", 5, "out-not-stored"),
        ("y=Y[rows])", "z=Y[rows])", 11, "unknown-argument"),
        ("Y[rows]", "Z[rows]", 11, "python-error"),
        ("def scale(", "def scale((", 5, "python-syntax"),
    ],
)
def test_mistakes_are_found_where_they_are(before: str, after: str, line: int, code: str) -> None:
    path = "/nowhere/document.py"
    found = [f for f in check_python(path, GOOD.replace(before, after)) if f.is_error]
    assert only(found).line == line and only(found).code == code, found


def test_each_kernel_has_its_finding() -> None:
    text = GOOD.replace("x * 2.0", "x * z").replace(
        "@workload", KERNEL.replace("x * 2.0", "x * w") + "@workload"
    )
    assert len([f for f in check_python("/nowhere/document.py", text) if f.code == "unknown-name"]) == 2


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    found = check_python(str(tmp_path / "a.py"), "import pto_wsp\nimport nowhere_at_all\n")
    assert only(found).line == 2 and "not checked" in only(found).message and not only(found).is_error
    endless = "import pto_wsp\nx = [0 for _ in iter(int, 1)]\n"
    assert "takes longer" in only(
        check_python(str(tmp_path / "a.py"), endless, time_limit_s=2.0)
    ).message.replace("take longer", "takes longer")
    ended = "import pto_wsp, os\nx = os._exit(3)\n"
    assert "status 3" in only(check_python(str(tmp_path / "a.py"), ended)).message


def test_imports_beside_the_document_are_found(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("ROWS = 64\n")
    text = GOOD.replace("import numpy as np", "import numpy as np\nfrom sizes import ROWS").replace(
        "Tile[64, 128", "Tile[ROWS, 128"
    )
    assert check_python(str(tmp_path / "document.py"), text) == []


def test_text_has_its_first_error() -> None:
    assert check_text("/nowhere/a.pto", GOOD) != []
    remark = only(check_text("/nowhere/a.pto", TEXT.replace("memref", "memory")))
    assert remark.line == 3 and remark.message


def test_a_proof_is_shown_at_its_loop(tmp_path: Path) -> None:
    pytest.importorskip("islpy")
    path = str(tmp_path / "document.py")
    proof = only(prove_document(path, GOOD))
    assert proof.line == 10 and proof.message.startswith("**proved**: independence of `P`")
    wrong = only(prove_document(path, GOOD.replace("y=Y[rows]", "y=Y[0:64]")))
    assert wrong.message.startswith("**refuted**") and "two tasks touch: Y[" in wrong.message
    assert prove_document(path, GOOD.replace("y=Y[rows]", "z=Y[rows]")) == []
    assert prove_document(path, GOOD, time_limit_s=0.01) == []


def test_words_and_what_they_mean() -> None:
    line = "    pto.store(y, pto.exp(x) + P.tiles)"
    assert word_at(line, 6) == "pto" and word_at(line, 9) == "pto.store" and word_at(line, 22) == "pto.exp"
    assert word_at(line, 32) == "P.tiles" and word_at("  ", 1) == ""
    shown = hover("pto.exp", is_text=False)
    assert shown is not None and "e to the x" in shown and "2 ulp" in shown and "y = pto.exp(x)" in shown
    assert "e to the x" in str(hover("texp", is_text=True)) and hover("exp", is_text=True) is None
    assert "tiles" in str(hover("P.tiles", is_text=False)) and hover("np.zeros", is_text=False) is None


# --- a session ---


async def session(tmp_path: Path) -> dict[str, Any]:
    """Open a document with a mistake, mend it, ask what a word means, and end."""
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    client: Any = LanguageClient("test", "1")
    published: asyncio.Queue[Any] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def receive(params: Any) -> None:
        published.put_nowait(params)

    await client.start_io(sys.executable, "-m", "pto_wsp", "lsp")
    started = await client.initialize_async(
        types.InitializeParams(capabilities=types.ClientCapabilities(), root_uri=tmp_path.as_uri())
    )
    client.initialized(types.InitializedParams())
    uri = (tmp_path / "document.py").as_uri()
    broken = GOOD.replace("x * 2.0", "x * z")
    item = types.TextDocumentItem(uri=uri, language_id="python", version=1, text=broken)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    first = await asyncio.wait_for(published.get(), 60)
    whole = types.TextDocumentContentChangeWholeDocument(text=GOOD)
    identifier = types.VersionedTextDocumentIdentifier(uri=uri, version=2)
    client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [whole]))
    second = await asyncio.wait_for(published.get(), 60)
    place = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(5, 10))
    meaning = await client.text_document_hover_async(place)
    loop = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(9, 8))
    proof = None
    for _ in range(100):  # the proof comes after the check
        proof = await client.text_document_hover_async(loop)
        if proof is not None:
            break
        await asyncio.sleep(0.3)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return {"started": started, "first": first, "second": second, "meaning": meaning, "proof": proof}


def test_a_session_with_a_client(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    pytest.importorskip("islpy")
    found = asyncio.run(session(tmp_path))
    assert found["started"].server_info.name == "pto-wsp"
    (mistake,) = [d for d in found["first"].diagnostics if d.severity == 1]
    assert mistake.range.start.line == 5 and mistake.code == "unknown-name" and found["first"].version == 1
    assert not found["second"].diagnostics and found["second"].version == 2
    assert "pto.store(y[r], t)" in found["meaning"].contents.value
    assert "independence of `P`" in found["proof"].contents.value
