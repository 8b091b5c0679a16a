"""The tests of every module can be found."""

from __future__ import annotations

from tests.subjects import find_tests, modules, subjects


def test_every_module_has_tests() -> None:
    without = [module for module in modules() if not find_tests(module)]
    assert not without, f"add test_<module>.py, or a line to tests/subjects.txt: {without}"


def test_every_line_of_the_table_is_true() -> None:
    missing = [str(path) for paths in subjects().values() for path in paths if not path.exists()]
    assert not missing, f"not there any more: {missing}"
    known = {*modules(), *(module.rpartition(".")[0] for module in modules())}
    unknown = subjects().keys() - known
    assert not unknown, f"no such module or folder: {unknown}"
