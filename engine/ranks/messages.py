"""Messages between Greenroom and its ranks: frames of MessagePack that only schema classes can come out of.

A rank may run on another machine. So nothing is pickled: a frame names attrs classes and enumerations of
`greenroom.schemas`, and the reader refuses every other name.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import msgspec

_PACKAGE = "greenroom.schemas."
_LENGTH = struct.Struct(">I")
_MOST_BYTES = 64 << 20
_INTEGERS = range(-(1 << 63), 1 << 64)  # Those of MessagePack

Message = tuple[Any, ...]
"""A message: its kind, then its values."""


class FrameReader:
    """Reader of whole messages from pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes; return the messages that are complete. Raises ValueError: the bytes are no messages."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            _check_length(length)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(_decode(msgspec.msgpack.decode(bytes(self._buffer[_LENGTH.size : end]))))
            del self._buffer[:end]
        return messages


def _check_length(length: int) -> None:
    if length > _MOST_BYTES:
        raise ValueError(f"a message of {length:,} bytes is too long for ranks")


def frame(message: Message) -> bytes:
    """Return a message as bytes. Raises TypeError, ValueError or RecursionError: it cannot be sent."""
    data = msgspec.msgpack.encode(_encode(message))
    _check_length(len(data))
    return _LENGTH.pack(len(data)) + data


def read_message(stream: BinaryIO) -> Message | None:
    """Read one message, waiting for it; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    _check_length(length)
    data = stream.read(length)
    return None if len(data) < length else tuple(_decode(msgspec.msgpack.decode(data)))


def _encode(value: Any) -> Any:
    match value:
        case Enum():
            return {"enum": _name(type(value)), "value": value.value}
        case int() if value not in _INTEGERS:
            return {"int": str(value)}
        case None | bool() | int() | float() | str() | bytes():
            return value
        case tuple():
            return {"tuple": [_encode(each) for each in value]}
        case list():
            return [_encode(each) for each in value]
        case Path():
            return {"path": str(value)}
        case AbstractSet():
            return {"set": [_encode(each) for each in value]}
        case Mapping():
            return {"map": [[_encode(key), _encode(each)] for key, each in value.items()]}
    if not attrs.has(type(value)):
        raise TypeError(f"a {type(value).__name__} cannot be sent to a rank")
    wanted = [each for each in attrs.fields(type(value)) if each.init]
    fields = {each.alias: _encode(getattr(value, each.name)) for each in wanted}
    return {"class": _name(type(value)), "fields": fields}


def _decode(value: Any) -> Any:
    match value:
        case list():
            return [_decode(each) for each in value]
        case {"tuple": list(parts)}:
            return tuple(_decode(each) for each in parts)
        case {"int": str(digits)}:
            return int(digits)
        case {"path": str(text)}:
            return Path(text)
        case {"set": list(parts)}:
            return frozenset(_decode(each) for each in parts)
        case {"map": list(pairs)}:
            return {_decode(key): _decode(each) for key, each in pairs}
        case {"enum": str(name), "value": number}:
            return _class(name)(number)
        case {"class": str(name), "fields": dict(fields)}:
            return _class(name)(**{field: _decode(each) for field, each in fields.items()})
        case dict():
            raise ValueError("a message of a rank has an unknown part")
    return value


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
