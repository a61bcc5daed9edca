"""Records for stores under test, and helpers that query a store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.database_file import default_path
from greenroom.actors.store.tables import Run, StoreMessage, Tables, ask_store
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import (
    EVERYBODY,
    StoredCompletion,
    StoredConversation,
    StoredItem,
    StoredResponse,
)

R = TypeVar("R")

PROBED = ProbedCapabilities(
    "org/model",
    "text",
    "qwen",
    tool_parser_id="llama_xml",
    supports_native_tools=True,
    supports_thinking=False,
    tool_format="native",
    practical_max_tokens=4096,
    probed_at=1_700_000_000.25,
    files="1f",
)
"""Findings about a text model."""


def item(name: str, text: str = "") -> StoredItem:
    """Return a message."""
    return StoredItem(name, json.dumps({"id": name, "text": text}))


def response(name: str, parent: str | None = None, conversation: str | None = None, **other: Any) -> Any:
    """Return a completed response with one input and one output item; `other` overrides its fields."""
    status = other.pop("status", "completed")
    fields: dict[str, Any] = {
        "owner": EVERYBODY,
        "model": "m",
        "created": 1.5,
        "body": json.dumps({"id": name, "status": status}),
        "completed": 2.5,
        "input": (item(f"{name}-in"),),
        "output": (item(f"{name}-out"),),
        "raw": f"raw {name}",
    }
    made = {**fields, **other}
    return StoredResponse(id=name, status=status, parent=parent, conversation=conversation, **made)


def conversation(name: str, **other: Any) -> StoredConversation:
    """Return a conversation."""
    return StoredConversation(**{"id": name, "owner": EVERYBODY, "created": 1.5, **other})


def completion(name: str, **other: Any) -> StoredCompletion:
    """Return a chat completion."""
    fields = {"owner": EVERYBODY, "created": 1.5, "model": "m", "messages": "[]", "body": "{}"}
    return StoredCompletion(**{"id": name, **fields, **other})


@asynccontextmanager
async def storing(db: object = None, **other: Any) -> AsyncIterator[System]:
    """Open a system with a store and no models; the store is in memory unless a file is given."""
    settings = Settings(db=None if db is None else str(db), shutdown_timeout=20.0, **other)
    async with open_system(settings) as system:
        yield system


async def ask(ref: Ref[StoreMessage], message: StoreMessage, answer: type[R]) -> R:
    """Return the store's answer to a message; fail if it is a problem."""
    answered = await ref.ask(message, answer)
    assert isinstance(answered, answer), answered
    return answered


async def change(store: Ref[StoreMessage], function: Callable[[Tables], R]) -> R:
    """Run a function that writes, and return its value; fail if it is refused."""
    return await ask_store(store, function, writes=True)


async def commit(store: Ref[StoreMessage], stored: StoredResponse, begun: bool = False) -> None:
    """Store a finished response; fail if that is refused."""
    await change(store, lambda tables: tables.responses.commit(stored, begun))


async def find(store: Ref[StoreMessage], name: str, owner: str = EVERYBODY) -> StoredResponse:
    """Return a stored response; fail if there is none."""
    return await ask_store(store, lambda tables: tables.responses.find(name, owner))


async def refusal(ref: Ref[StoreMessage], asked: StoreMessage | Callable[[Tables], object]) -> Problem:
    """Return the problem that the store answers to a message or a function; fail if there is none."""
    answered = await ref.ask(Run(asked, writes=True) if callable(asked) else asked, Failed)
    assert isinstance(answered, Failed)
    return answered.problem


def names_of(*responses: str) -> Sequence[str]:
    """Return the ids of these responses' items, in order."""
    return [f"{name}-{side}" for name in responses for side in ("in", "out")]


def unusable_default_database(monkeypatch: pytest.MonkeyPatch, home: Path) -> str:
    """Return the path of the default database, which is a folder: a server runs without it."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    default_path().mkdir(parents=True)
    return str(default_path())
