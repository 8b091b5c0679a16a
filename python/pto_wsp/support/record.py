"""Frozen classes of named fields that are cheap to define: importing the package defines many.

`dataclasses.dataclass` compiles a page of source per class, about 0.5 ms; `record` compiles one line.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a record: each annotation in its body is a field, a value assigned there its default.

    Records are frozen, and compared, hashed and shown by class and fields. The field `loc`, the place a
    record comes from, takes no part in that, nor do those that the class lists in `apart`. Methods that the
    class defines itself stay. Fields are not inherited.
    """
    fields = tuple(cls.__annotations__)
    apart = ("loc", *vars(cls).get("apart", ()))
    shown = tuple(name for name in fields if name not in apart)
    key = attrgetter("__class__", *shown)

    def equal(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(key(self))

    def text(self: object) -> str:
        return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def compiled(self: object, *args: Any, **kwargs: Any) -> None:
        """Compile `__init__` when the first record is made: importing the package makes few."""
        made = _initializer(cls, fields)
        if vars(cls).get("__init__") is compiled:
            type.__setattr__(cls, "__init__", made)
        made(self, *args, **kwargs)

    methods = {"__init__": compiled, "__eq__": equal, "__hash__": hashed, "__repr__": text}
    methods |= {"__setattr__": _refuse, "__delattr__": _refuse, "__match_args__": fields}
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return cls


def replace(item: T, **changes: Any) -> T:
    """Return a copy of a record with some fields changed.

    Raises:
        TypeError: there is no such field.
    """
    return type(item)(**{**vars(item), **changes})


def _initializer(cls: type, fields: tuple[str, ...]) -> Callable[..., None]:
    """Compile `__init__`, so that Python itself binds arguments and words the errors."""
    defaults = vars(cls)
    parameters = [f"{name}=defaults[{name!r}]" if name in defaults else name for name in fields]
    settings = ["own_fields = self.__dict__", *(f"own_fields[{name!r}] = {name}" for name in fields)]
    source = f"def __init__(self, {', '.join(parameters)}): {'; '.join(settings)}"
    scope: dict[str, Any] = {"defaults": defaults}
    exec(source, scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return scope["__init__"]


def _refuse(self: object, name: str, value: object = None) -> None:
    raise AttributeError(f"cannot change `{name}`: a {type(self).__name__} is frozen")
