"""Programs are saved as text and loaded again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import MemLayout, Program, parse
from pto_wsp.errors import PtoError, TextVersion, UnusableFile, WrongRank
from pto_wsp.ir.entry import with_entry_workload
from tests.python.lang.programs import execute

NUM_FILES = 300

SCALED = """
@kernel
def scale(x: In[Tile[8, 16, f32]], w: In[Tensor[f32, 16, 4]], y: Out[Tile[8, 16, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)

@kernel(cpp_src="y(0, 0) += 1;")
def bump(y: InOut[Tile[8, 16, f32]]): ...

@workload
def scaled(X: Tensor[f32, "n", 16], W: Tensor[f32, 16, 12, MemLayout.panels(4)], Y: Tensor[f32, "n", 16],
           factor: Scalar[f32] = 3.0):
    for i in P.tiles("n", 8):
        scale[i](x=X[i], w=W[:, 4:8], y=Y[i], factor=factor)
        bump[i](y=Y[i])
"""


def program() -> Program:
    return execute(SCALED)["scaled"].compile("cpu")  # pyright: ignore


def arguments(rows: int = 20) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    weights = MemLayout.panels(4).pack(rng.random((16, 12), np.float32))
    x = rng.random((rows, 16), np.float32)
    return {"X": x, "W": weights, "Y": np.zeros_like(x)}


def test_a_program_comes_back(tmp_path: Path) -> None:
    saved, path = program(), tmp_path / "scaled.pto"
    saved.set_symbol_f32("factor", 2.0)
    saved.save(path)
    loaded = Program.load(path)
    wanted, found = arguments(), arguments()
    saved.run(**wanted)
    loaded.run(**found)
    assert wanted["Y"].any() and wanted["Y"].tobytes() == found["Y"].tobytes()
    again = tmp_path / "again.pto"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert parse(path.read_text()) == loaded.module


def test_layouts_come_back(tmp_path: Path) -> None:
    path = tmp_path / "scaled.pto"
    program().save(path)
    values = {**arguments(), "W": np.zeros((16, 12), np.float32)}
    with pytest.raises(WrongRank, match="panels") as caught:
        Program.load(path, "interp").run(**values)
    assert caught.value.code == "wrong-rank"


def test_no_code_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "scaled.pto"
    program().save(path)
    text = path.read_text()
    assert text.startswith("// PTO Text: 1\n// PTO Module: scaled\n")
    assert "|y(0, 0) += 1;" in text and "%factor: f32 = 3.0" in text and "{columns = 12}" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"\xff\xfe", "not UTF-8"), (b"func @f()\n", "does not begin with")],
)
def test_files_that_are_no_programs(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "p.pto"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnusableFile, match=message):
        Program.load(path)
    with pytest.raises(UnusableFile, match="written"):
        program().save(tmp_path / "nowhere" / "p.pto")


def test_files_that_have_changed(tmp_path: Path) -> None:
    """What is loaded of a changed file is what its text says, or nothing."""
    saved = program()
    saved.set_symbol_f32("factor", 2.0)
    path, again = tmp_path / "p.pto", tmp_path / "again.pto"
    saved.save(path)
    whole, draw, num_loaded = path.read_bytes(), random.Random(3), 0
    for _ in range(NUM_FILES):
        path.write_bytes(changed(whole, draw))
        try:
            loaded = Program.load(path, "interp")
        except PtoError as error:
            assert str(error)
            continue
        num_loaded += 1
        text = path.read_bytes().decode()
        assert loaded.module in (parse(text), with_entry_workload(parse(text)).reached)
        loaded.save(again)
        assert Program.load(again, "interp").module == loaded.module
    assert 5 < num_loaded < NUM_FILES - 5


def changed(data: bytes, draw: random.Random) -> bytes:
    """Return bytes some of which are other ones, twice there, or missing."""
    at = draw.randrange(len(data))
    end = min(len(data), at + draw.choice((1, 1, 2, 30, len(data))))
    match draw.randrange(4):
        case 0:
            return data[:at] + data[end:]
        case 1:
            return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:end] + data[at:]
        case _:
            return data[:at] + draw.choice(b"0123456789 %{}[]:\n").to_bytes(1, "big") + data[at + 1 :]


def test_other_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.pto"
    path.write_text("// PTO Text: 2\n// PTO Module: m\n")
    with pytest.raises(TextVersion, match="version 2"):
        Program.load(path)
