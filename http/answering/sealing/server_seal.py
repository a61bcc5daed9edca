"""The server's encryption key, kept in its store so that content from before a restart still decrypts."""

from __future__ import annotations

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.sealing.seal import Seal
from greenroom.schemas.protocols.store_protocol import FindSecret, Secret, StoreMessage


class ServerSeal:
    """The server's seal, made with the store's key when it is first used.

    Args:
        store: Store with the key.
    """

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self._store = store
        self._seal: Seal | None = None

    async def load(self) -> Seal:
        """Return the seal.

        Raises:
            ProblemError: The store does not return its key.
        """
        if self._seal is None:
            secret = await ask_actor(self._store, FindSecret("seal"), Secret)
            # A worker thread, because the first call imports a library for a tenth of a second.
            self._seal = await trio.to_thread.run_sync(Seal, secret.value)
        return self._seal
