"""Ollama's protocol, as the application knows it."""

from __future__ import annotations

from quart import Blueprint

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.wire_protocol import WireProtocol
from greenroom.http.ollama.answer_routes import answer_routes
from greenroom.http.ollama.errors import error_members
from greenroom.http.ollama.model_routes import model_routes
from greenroom.schemas.pool_protocol import PoolMessage


def _routes(pool: Ref[PoolMessage], status_timeout: float) -> tuple[Blueprint, ...]:
    return model_routes(pool), answer_routes(pool, status_timeout)


OLLAMA_PROTOCOL = WireProtocol(("/api/",), _routes, error_members, any_body_type=True)
