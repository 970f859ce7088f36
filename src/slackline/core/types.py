"""Event types with a schema, so that high-rate types stay columnar from end to end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from slackline.core.errors import ConfigError

#: The declarations of a field, and the NumPy type of its column.
FIELD_TYPES: Mapping[Any, np.dtype[Any]] = MappingProxyType(
    {
        float: np.dtype(np.float64),
        int: np.dtype(np.int64),
        bool: np.dtype(np.bool_),
        str: np.dtype(object),
        object: np.dtype(object),
    }
)


class EventType:
    """A name for events together with the fields they carry.

    Use it wherever a type name is accepted (``listens``, ``publishes``, ``clock``). ``source`` names the table
    column that holds the source; fields are ``float``, ``int``, ``bool``, ``str`` or a NumPy dtype name.

    **A type that declares fields carries exactly these**, in their declared types, whether it is pushed as events or as
    columns. A value that its field cannot hold (300 in an ``int8``, a text in a ``float``, none in an ``int``)
    sends the event to quarantine; a ``float`` without a value is NaN, a ``str`` without one is left out. So do a source
    that is none of the ``sources`` (where they are given) and a number that is not finite (where ``finite``): no
    detector sees such an event. At the start, events of a type with ``sources`` wait until each of these has delivered.

    >>> position = EventType("position", source="sid", sources=(4, 8), finite=True, x=float, y="float32")
    >>> position.name, dict(position.fields)["y"]
    ('position', dtype('float32'))
    """

    __slots__ = ("fields", "finite", "name", "source", "sources")

    def __init__(
        self,
        name: str,
        /,
        source: str = "source",
        sources: Iterable[int | str] | None = None,
        finite: bool = False,
        **fields: Any,
    ) -> None:
        if not name:
            raise ConfigError(f"an event type needs a name, a non-empty string; got {name!r}.")
        self.name = name
        self.source = source
        self.sources = None if sources is None else frozenset(sources)
        self.finite = finite
        self.fields: Mapping[str, np.dtype[Any]] = MappingProxyType(
            {field: _dtype(name, field, kind) for field, kind in fields.items()}
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventType) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._identity()

    def _identity(self) -> tuple[Any, ...]:
        fields = {field: dtype.str for field, dtype in self.fields.items()}
        return self.name, self.source, self.sources, self.finite, fields

    @property
    def demanding(self) -> bool:
        """Whether events of this type are checked against a declaration."""
        return self.sources is not None or self.finite or bool(self.fields)

    def __repr__(self) -> str:
        fields = "".join(f", {field}={dtype}" for field, dtype in self.fields.items())
        return f"EventType({self.name!r}{fields})"


def _rebuild(
    name: str, source: str, sources: frozenset[int | str] | None, finite: bool, fields: dict[str, str]
) -> EventType:
    return EventType(name, source, sources, finite, **fields)


def _dtype(name: str, field: str, kind: Any) -> np.dtype[Any]:
    if kind in FIELD_TYPES:
        return FIELD_TYPES[kind]
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise ConfigError(
            f"field {field!r} of event type {name!r} is declared as {kind!r}; "
            f"use float, int, bool, str or the name of a NumPy dtype such as 'float32'."
        ) from None
    return dtype if dtype.kind in "fiub" else np.dtype(object)


def type_name(kind: str | EventType) -> str:
    """The name of a type given by name or as :class:`EventType`."""
    return kind.name if isinstance(kind, EventType) else kind


def type_names(kinds: str | EventType | Iterable[str | EventType]) -> tuple[str, ...]:
    """The names of one or several types.

    >>> type_names("kick"), type_names([EventType("near"), "kick"])
    (('kick',), ('near', 'kick'))
    """
    if isinstance(kinds, str | EventType):
        kinds = (kinds,)
    return tuple(type_name(kind) for kind in kinds)


@lru_cache(maxsize=1024)
def shared_set(names: tuple[str, ...]) -> frozenset[str]:
    """The names as a set, the same object for all engines of a process."""
    return frozenset(names)
