"""Ollama's protocol as a `WireProtocol`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.protocols.wire_protocol import WireProtocol
from greenroom.http.ollama.answer_routes import answer_routes
from greenroom.http.ollama.embedding_routes import embedding_routes
from greenroom.http.ollama.errors import error_members
from greenroom.http.ollama.model_routes import model_routes


def _routes(refs: ActorRefs, status_timeout: float) -> tuple[Blueprint, ...]:
    return model_routes(refs.pool), answer_routes(refs.pool, status_timeout), embedding_routes(refs.pool)


OLLAMA_PROTOCOL: WireProtocol = WireProtocol(("/api/",), _routes, error_members, any_body_type=True)
