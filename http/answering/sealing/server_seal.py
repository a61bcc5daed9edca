"""The server's encryption key, kept in its store so that content from before a restart still decrypts."""

from __future__ import annotations

import trio
from quart import current_app

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.sealing.seal import Seal
from greenroom.schemas.protocols.store_protocol import FindSecret, Secret, StoreMessage

_EXTENSION = "greenroom_seal"


async def server_seal(store: Ref[StoreMessage]) -> Seal:
    """Return the server's seal.

    Raises:
        ProblemError: The store does not return its key.
    """
    if _EXTENSION not in current_app.extensions:
        secret = await ask_actor(store, FindSecret("seal"), Secret)
        # A worker thread, because the first call imports a library for a tenth of a second.
        current_app.extensions[_EXTENSION] = await trio.to_thread.run_sync(Seal, secret.value)
    seal: Seal = current_app.extensions[_EXTENSION]
    return seal
