"""The seal of this server, whose key lies in its store: what it sealed before a restart opens after it."""

from __future__ import annotations

import trio
from quart import current_app

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.sealing.seal import Seal
from greenroom.schemas.store_protocol import FindSecret, Secret, StoreMessage

_EXTENSION = "greenroom_seal"


async def server_seal(store: Ref[StoreMessage]) -> Seal:
    """Return the seal.

    Raises:
        ProblemError: The store does not give its key away.
    """
    if _EXTENSION not in current_app.extensions:
        secret = await ask_actor(store, FindSecret("seal"), Secret)
        # The first one takes a tenth of a second, for its library.
        current_app.extensions[_EXTENSION] = await trio.to_thread.run_sync(Seal, secret.value)
    seal: Seal = current_app.extensions[_EXTENSION]
    return seal
