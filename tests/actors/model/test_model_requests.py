"""A model's requests between the end of one engine and the start of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import structlog

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.model.model_loop import Command, Resume, Submit
from greenroom.actors.model.model_requests import ModelRequests
from greenroom.actors.model.running_requests import Preparation
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.problems import model_crashed
from greenroom.schemas.protocols.model_protocol import Generate, RequestEnded
from greenroom.tests.support.actors.actor_systems import chat

PREPARED = PreparedPrompt((1, 2, 3), frozenset(), 9, GenerationParameters())


@attrs.define
class Left:
    """A suspended request, which holds resources until it is closed."""

    closed: bool = False

    def close(self) -> None:
        self.closed = True


class Kept:
    """A model's requests, and the commands sent to their engine."""

    def __init__(self) -> None:
        self.put: list[Command] = []
        self.replies: dict[str, ReplyStream[Any]] = {}
        preparations: list[Preparation] = []
        self._preparations = preparations
        log = structlog.get_logger()
        self.ends: list[RequestEnded] = []
        callbacks = preparations.append, self.put.append, lambda closed: None, self.ends.append
        self.requests = ModelRequests(*callbacks, log)
        self.requests.start_engine()

    def generate(self, name: str) -> None:
        """Have a request prepared and submitted."""
        replies = self.replies[name] = ReplyStream()
        self.requests.generate(Generate(chat("m", name)), replies.sender, model_crashed("m"))
        self.requests.record_prepared(self._preparations.pop(), PREPARED)

    def told(self) -> list[tuple[object, str]]:
        """Return the commands sent to the engine since the last call."""
        told: list[tuple[object, str]] = [
            (type(command), command.request_id)
            for command in self.put
            if isinstance(command, Submit | Resume)
        ]
        self.put.clear()
        return told


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def test_requests_go_on_in_the_order_in_which_it_is_their_turn_before_those_that_came_since(
    kept: Kept,
) -> None:
    for name in ("one", "two", "three"):
        kept.generate(name)
    assert kept.told() == [(Submit, "one"), (Submit, "two"), (Submit, "three")]
    kept.requests.suspend()
    kept.generate("later")
    kept.requests.end_engine({"three": Left(), "one": Left(), "two": Left()}, (), model_crashed("m"))
    kept.requests.start_engine()
    assert kept.told() == [(Resume, "three"), (Resume, "one"), (Resume, "two"), (Submit, "later")]


async def test_what_a_crashed_engine_was_told_too_late_is_told_to_the_next(kept: Kept) -> None:
    for name in ("begun", "waiting", "late"):
        kept.generate(name)
    late = kept.put[-1]
    kept.told()
    kept.requests.end_engine({"waiting": Left()}, [late], model_crashed("m"))
    assert isinstance(await kept.replies["begun"].receive(), Failed)
    kept.requests.start_engine()
    assert kept.told() == [(Resume, "waiting"), (Submit, "late")]


@pytest.mark.parametrize("fail", [ModelRequests.end, ModelRequests.fail_running])
async def test_nothing_is_held_for_requests_that_failed_before_their_engine_had_left_them(
    kept: Kept, fail: Callable[..., None]
) -> None:
    kept.generate("one")
    kept.generate("two")
    fail(kept.requests, model_crashed("m"))
    suspended, late = Left(), Left()
    kept.requests.end_engine({"one": suspended}, [Resume("two", late)], model_crashed("m"))
    assert suspended.closed
    assert late.closed


async def test_what_an_engine_that_could_never_be_left_was_told_too_late_is_let_go(kept: Kept) -> None:
    kept.generate("one")
    late = Left()
    kept.requests.end_engine(None, [Resume("one", late)], model_crashed("m"))
    assert late.closed
    assert isinstance(await kept.replies["one"].receive(), Failed)
