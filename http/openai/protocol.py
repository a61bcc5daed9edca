"""OpenAI's protocol, as the application knows it."""

from __future__ import annotations

from quart import Blueprint

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.wire_protocol import WireProtocol
from greenroom.http.openai.chat_routes import chat_routes
from greenroom.http.openai.completion_routes import completion_routes
from greenroom.http.openai.errors import error_members
from greenroom.http.openai.model_formatter import OpenAIModelFormatter
from greenroom.http.openai.token_routes import token_routes
from greenroom.schemas.pool_protocol import PoolMessage


def _routes(pool: Ref[PoolMessage], status_timeout: float) -> tuple[Blueprint, ...]:
    return (
        chat_routes(pool, status_timeout),
        completion_routes(pool, status_timeout),
        token_routes(pool),
    )


OPENAI_PROTOCOL = WireProtocol(("/v1/",), _routes, error_members, OpenAIModelFormatter())
