"""Requests of Ollama without a prompt, which load their model or unload it."""

from __future__ import annotations

from typing import Any

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.default_list import acquire_first
from greenroom.http.answering.requests.allowed_models import describe_models
from greenroom.http.answering.requests.current_request import caller, request_client, request_id
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.ollama.keep_alive import parse_keep_alive
from greenroom.schemas.protocols.pool_protocol import Acquire, PoolMessage, Unloading, UnloadModel


async def load_or_unload(pool: Ref[PoolMessage], name: str, keep_alive: Any) -> str:
    """Load a model, or begin to unload it if it is to be kept for no time; return Ollama's reason of the end.

    Raises:
        ProblemError: 400 that names the field, 404, 409 if the operator has pinned the model or others use
            it, or the failure of the load.
    """
    key, wish = parse_model_key(name), parse_keep_alive(keep_alive)
    if wish is not None and wish.seconds == 0:
        await describe_models(pool, name)  # nobody unloads what its key may not use
        client = None if caller().admin else request_client()
        message = UnloadModel(
            key, spares_pinned=True, keeps_prefixes=True, client=client, reason="keep_alive"
        )
        await ask_actor(pool, message, Unloading)
        return "unload"
    allowed, client = caller().models, request_client()
    granted = await acquire_first(
        pool,
        Acquire(key, request_id(), keep_alive=wish, limited=True, allowed=allowed, client=client),
    )
    granted.lease.close()
    return "load"
