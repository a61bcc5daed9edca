"""Copies of models, each of which is a further name with its own settings: making and deleting them."""

from __future__ import annotations

import re
from functools import partial

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.engines.engines import Engines
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.model_copy import ModelCopy
from greenroom.schemas.problems import Problem, ProblemError, invalid, not_here
from greenroom.schemas.protocols.copy_store_protocol import DeleteCopy, SaveCopy
from greenroom.schemas.protocols.download_protocol import CopyModel, ModelCopied, ModelDeleted
from greenroom.schemas.protocols.store_protocol import Committed, Deleted, StoreMessage

MAX_COPIES = 1_000
"""Maximum number of copies: each is listed."""

_LATEST = ":latest"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(f"{_PART}(/{_PART})?(:[A-Za-z0-9._-]{{1,80}})?")

log = get_logger(actor="downloads")


class Copying:
    """Makes and deletes copies, one at a time."""

    def __init__(self, engines: Engines, store: Ref[StoreMessage]) -> None:
        self._engines = engines
        self._store = store
        self._turn = trio.Lock()

    async def copy(self, message: CopyModel) -> ModelCopied:
        """Give a model a further name, which outlives the server if its database does.

        Raises:
            ProblemError: 404 if there is no such model, 400 if the name is invalid or taken; see `SaveCopy`.
        """
        async with self._turn:
            copy = await trio.to_thread.run_sync(partial(_plan, message, self._engines))
            await ask_actor(self._store, SaveCopy(copy), Committed)
            self._engines.copies.record(copy)
            await trio.to_thread.run_sync(self._engines.rename)
        log.info("model copied", model=copy.profile.model, name=copy.name)
        return ModelCopied(copy)

    async def delete(self, name: str) -> ModelDeleted | None:
        """Delete the copy with this name; return None if no copy has it."""
        name = name.removesuffix(_LATEST)
        async with self._turn:
            if not await trio.to_thread.run_sync(partial(_is_copy, name, self._engines)):
                return None
            await ask_actor(self._store, DeleteCopy(name), Deleted)
            self._engines.copies.forget(name)
            await trio.to_thread.run_sync(self._engines.rename)
        log.info("copy deleted", name=name)
        return ModelDeleted(name, 0)


def _plan(message: CopyModel, engines: Engines) -> ModelCopy:
    """Return the copy that a message asks for.

    Raises:
        ProblemError: See `Copying.copy`.
    """
    name = message.name.removesuffix(_LATEST)
    found = engines.find(message.source)
    if isinstance(found, Problem):
        raise ProblemError(found)
    if found.unlisted:
        raise ProblemError(not_here(message.source[:200]))
    if not _NAME.fullmatch(name):
        detail = (
            f"'{name[:200]}' is no name of a model: it may have letters, digits, '.', '_' and '-', one '/', "
            "and a tag after ':'."
        )
        raise invalid(detail, "destination")
    if engines.is_taken(name):
        raise invalid(f"'{name}' is the name of a model already: delete that first.", "destination")
    known = engines.copies.known()
    if len(known) >= MAX_COPIES and name not in known:
        raise invalid(f"There are {MAX_COPIES:,} copies of models: delete some first.", "destination")
    return ModelCopy(name, engines.profile_of(found))


def _is_copy(name: str, engines: Engines) -> bool:
    """Return whether a name means a copy, rather than a model, alias or profile of that name."""
    if name not in engines.copies.known():
        return False
    found = engines.find(name)
    return isinstance(found, Problem) or found.profile == name
