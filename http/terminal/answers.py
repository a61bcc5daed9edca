"""Answers to requests of commands: from a system in this process, or from a server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.requests import InferenceRequest, RequestInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.pool_protocol import PoolMessage


class Ask(Protocol):
    """A function that runs a request on the command's model."""

    def __call__(self, asked: RequestInput) -> AbstractAsyncContextManager[AsyncIterable[InferenceEvent]]:
        """Return the events of an answer up to Finished or Failed; leaving the context cancels it."""


def ask_pool(pool: Ref[PoolMessage]) -> Ask:
    """Return a function that asks the first model of a system in this process."""

    @asynccontextmanager
    async def ask(asked: RequestInput) -> AsyncIterator[AsyncIterable[InferenceEvent]]:
        with Generation(pool, InferenceRequest(uuid.uuid4().hex, ModelKey("default"), asked)) as generation:
            yield generation

    return ask
