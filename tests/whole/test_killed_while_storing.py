"""A server killed while it stores responses leaves no partial record, and keeps all reported ones."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import openai
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

WRITERS = 8
ENDED = ("completed", "incomplete")


@attrs.define
class Writer:
    """A client that sends one turn after another, and records the server's responses.

    Args:
        number: Number that determines how it keeps its history and how it sends requests.
        told: Texts of responses received to their end, by id.
        accepted: Ids of accepted background responses.
        last: Id of the last response, to continue from if there is no conversation.
    """

    number: int
    conversation: str | None = None
    told: dict[str, str] = attrs.field(factory=dict)
    accepted: set[str] = attrs.field(factory=set)
    last: str | None = None

    @property
    def in_conversation(self) -> bool:
        """True if its turns belong to a conversation; otherwise each names the previous response."""
        return self.number % 2 == 0

    def take_turns(self, client: openai.OpenAI, ended: threading.Semaphore) -> None:
        """Send turns until the server is gone."""
        try:
            if self.in_conversation and self.conversation is None:
                self.conversation = client.conversations.create().id
            while True:
                self._take_turn(client)
                ended.release()
        except (openai.APIConnectionError, httpx2.TransportError):
            return

    def _take_turn(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {
            "model": "default",
            "input": f"Writer {self.number}, turn {len(self.told)}",
            "max_output_tokens": 4,
            "truncation": "auto",
        }
        if self.in_conversation:
            asked["conversation"] = self.conversation
        elif self.last is not None:
            asked["previous_response_id"] = self.last
        match self.number // 2:
            case 0:
                response = client.responses.create(**asked)
            case 1:
                with client.responses.stream(**asked) as stream:
                    events = list(stream)
                assert events[-1].type in ("response.completed", "response.incomplete")
                response = events[-1].response
            case _:
                accepted = client.responses.create(**asked, background=True)
                self.accepted.add(accepted.id)
                *_, last = client.responses.retrieve(accepted.id, stream=True)
                assert last.type in ("response.completed", "response.incomplete")
                response = last.response
        self.told[response.id] = response.output_text
        self.last = response.id


@contextmanager
def running(model: Path, database: Path) -> Iterator[ServerProcess]:
    """Run a server until it is killed."""
    with serving(str(model), "--db", str(database)) as server:
        yield server


@contextmanager
def connected_to(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """Return a client that never retries."""
    address = f"{server.address}/v1"
    with openai.OpenAI(base_url=address, api_key="any", max_retries=0, timeout=60) as client:
        yield client


def write_until_killed(server: ServerProcess, writers: list[Writer], chance: random.Random) -> None:
    """Let all writers send turns concurrently, and kill the server at a random moment."""
    ended = threading.Semaphore(0)
    with connected_to(server) as client, ThreadPoolExecutor(WRITERS) as threads:
        taking = [threads.submit(writer.take_turns, client, ended) for writer in writers]
        try:
            for _ in range(chance.randrange(WRITERS, 3 * WRITERS)):
                assert ended.acquire(timeout=120)
            # Kill the server within a turn too, not only just after one.
            threading.Event().wait(chance.random() * 0.05)
        finally:
            server.process.kill()  # else the writers would go on for ever
        for each in taking:
            each.result(PATIENCE)


def check(client: openai.OpenAI, writers: list[Writer]) -> None:
    """Check that all reported responses are stored completely."""
    for writer in writers:
        for ident, text in writer.told.items():
            found = client.responses.retrieve(ident)
            assert found.status in ENDED
            assert found.output_text == text
            assert [item.id for item in client.responses.input_items.list(ident)]
        for ident in writer.accepted:
            assert client.responses.retrieve(ident).status in (*ENDED, "failed")
        if writer.conversation is not None:
            _check_conversation(client, writer)


def check_that_all_goes_on(client: openai.OpenAI, writers: list[Writer]) -> None:
    """Check that each writer's last response can be continued."""
    for writer in writers:
        assert writer.last is not None
        goes_on = client.responses.create(
            model="default",
            input="And?",
            previous_response_id=writer.last,
            truncation="auto",
            max_output_tokens=2,
        )
        assert goes_on.status in ENDED


def _check_conversation(client: openai.OpenAI, writer: Writer) -> None:
    assert writer.conversation is not None
    items: list[Any] = [*client.conversations.items.list(writer.conversation, order="asc", limit=100)]
    assert [item.role for item in items] == ["user", "assistant"] * (len(items) // 2), "whole turns only"
    answers = [item.content[0].text for item in items if item.role == "assistant"]
    told = iter(answers)
    assert all(text in told for text in writer.told.values()), "all that was told, in its order"


@pytest.mark.deep
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_a_killed_server_leaves_whole_turns_only(kills: int, tiny_model: TinyModel, tmp_path: Path) -> None:
    chance = random.Random(kills)
    files = tiny_model("qwen3"), tmp_path / "store.db"
    writers = [Writer(number) for number in range(WRITERS)]
    for _ in range(kills):
        with running(*files) as server:
            with connected_to(server) as client:
                check(client, writers)
            write_until_killed(server, writers, chance)
    with running(*files) as server, connected_to(server) as client:
        check(client, writers)
        check_that_all_goes_on(client, writers)
