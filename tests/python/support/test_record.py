"""Records: frozen, compared and shown by class and fields, without their place."""

from __future__ import annotations

import copy
import pickle

import pytest

from pto_wsp.ir.scalar import Const
from pto_wsp.support.record import record, replace


@record
class Point:
    x: int
    y: int = 0
    loc: str | None = None


@record
class Other:
    x: int
    y: int = 0


@record
class Empty:
    pass


@record
class Named:
    name: str

    def __repr__(self) -> str:
        return self.name


def test_fields_are_given_by_place_and_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(y=2, x=1).y) == (1, 0, 2)


@pytest.mark.parametrize(
    ("values", "named", "text"),
    [((), {}, "missing 1 required"), ((1, 2, "p", 4), {}, "takes from 2 to 4"), ((1,), {"z": 2}, "'z'")],
)
def test_wrong_arguments_are_refused(values: tuple, named: dict, text: str) -> None:
    with pytest.raises(TypeError, match=rf"Point\.__init__\(\) .*{text}"):
        Point(*values, **named)


def test_the_place_takes_no_part_in_comparisons() -> None:
    here, there = Point(1, 2, loc="a"), Point(1, 2, loc="b")
    assert here == there
    assert hash(here) == hash(there)
    assert repr(here) == "Point(x=1, y=2)"


def test_fields_and_class_decide_equality() -> None:
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert Empty() == Empty()
    assert {Empty(): 1}[Empty()] == 1
    assert repr(Empty()) == "Empty()"


def test_a_record_is_frozen() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="cannot change `x`: a Point is frozen"):
        point.x = 2
    with pytest.raises(AttributeError, match="cannot change `x`"):
        del point.x
    with pytest.raises(AttributeError, match="cannot change `new`"):
        point.new = 1


def test_a_record_is_matched_by_place() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_replace_changes_some_fields() -> None:
    changed = replace(Point(1, 2, loc="a"), x=5)
    assert (changed.x, changed.y, changed.loc) == (5, 2, "a")
    with pytest.raises(TypeError, match="'z'"):
        replace(changed, z=1)


def test_own_methods_stay() -> None:
    assert repr(Named("n")) == "n"


def test_a_record_can_be_copied_and_pickled() -> None:
    value = Const(3)
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
