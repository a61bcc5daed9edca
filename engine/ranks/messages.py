"""Messages between Greenroom and its ranks: frames of MessagePack that only schema classes can come out of.

A rank may run on another machine. So nothing is pickled: a frame names attrs classes and enumerations of
`greenroom.schemas`, and the reader refuses every other name.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import attrs
import msgspec

from greenroom.schemas.events.statistics import RankStatus

_PACKAGE = "greenroom.schemas."
_LENGTH = 4  # Bytes of a message's length before it
_MOST_BYTES = 64 << 20
_BEAT_SECONDS = 0.5
_INTEGERS = range(-(1 << 63), 1 << 64)  # Those of MessagePack
_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    **{"tuple": tuple, "int": int, "path": Path, "set": frozenset, "map": dict}
}

Message = tuple[Any, ...]
"""A message: its kind, then its values."""
Commands = SimpleQueue[Message]


class FrameReader:
    """Reader of whole messages from pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes; return the messages that are complete. Raises ValueError: the bytes are no messages."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _LENGTH:
            end = _LENGTH + _checked(int.from_bytes(self._buffer[:_LENGTH], "big"))
            if len(self._buffer) < end:
                break
            messages.append(_decode(msgspec.msgpack.decode(self._buffer[_LENGTH:end])))
            del self._buffer[:end]
        return messages


def _checked(length: int) -> int:
    if length > _MOST_BYTES:
        raise ValueError(f"a message of {length:,} bytes is too long for ranks")
    return length


def frame(message: Message) -> bytes:
    """Return a message as bytes. Raises TypeError, ValueError or RecursionError: it cannot be sent."""
    data = msgspec.msgpack.encode(_encode(message))
    return _checked(len(data)).to_bytes(_LENGTH, "big") + data


class Reports:
    """The reports of a rank to its parent; all methods may be called on any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._status, self._stream, self._lock = RankStatus(), stream, threading.Lock()

    def advance(self, **news: Any) -> None:
        """Count a piece of work, so that one who waits in a transfer is seen, and change the status."""
        self._status = attrs.evolve(self._status, progress=self._status.progress + 1, **news)

    def tell(self, **news: Any) -> None:
        self.advance(**news)
        self.put()

    def put(self, *message: Any) -> None:
        """Send a message, by default the status, which no older one may follow."""
        with self._lock:
            self._stream.write(frame(message or ("beat", self._status)))
            self._stream.flush()

    def beat_forever(self) -> None:
        while True:
            self.put()
            time.sleep(_BEAT_SECONDS)


def _encode(value: Any) -> Any:
    """Return a value as MessagePack has it: what that has not is a map of its class to its parts."""
    match value:
        case Enum():
            return {_name(type(value)): value.value}
        case int() if value not in _INTEGERS:
            return {"int": str(value)}
        case None | bool() | int() | float() | str() | bytes():
            return value
        case list():
            return [_encode(each) for each in value]
        case Path():
            return {"path": str(value)}
        case tuple() | AbstractSet():
            return {"tuple" if isinstance(value, tuple) else "set": [_encode(each) for each in value]}
        case Mapping():
            return {"map": [[_encode(key), _encode(each)] for key, each in value.items()]}
    if not attrs.has(type(value)):
        raise TypeError(f"a {type(value).__name__} cannot be sent to a rank")
    wanted = [each for each in attrs.fields(type(value)) if each.init]
    return {_name(type(value)): [[each.alias, _encode(getattr(value, each.name))] for each in wanted]}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(name, parts)] = value.items()
    if made := _PLAIN.get(name):
        return made(_decode(parts))
    kind = _class(name)
    return kind(parts) if issubclass(kind, Enum) else kind(**dict(_decode(parts)))


def _name(kind: type[Any]) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    _class(name)
    return name


@cache
def _class(name: str) -> Any:
    """Return a class of the schemas by its name. Raises ValueError: it is none."""
    module, _, qualified = name.partition(":")
    if module.startswith(_PACKAGE) and qualified.isidentifier():
        found = getattr(importlib.import_module(module), qualified, None)
        if isinstance(found, type) and (attrs.has(found) or issubclass(found, Enum)):
            return found
    raise ValueError(f"{name!r} may not be sent between ranks")
