"""Search for models on the hub, with a time limit."""

from __future__ import annotations

from functools import partial

import trio

from greenroom.actors.core.reply import Reply
from greenroom.engine.catalog.hub.search import SEARCH_SECONDS, search_hub
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.download_protocol import FoundModel, FoundModels, SearchHub


def search(words: str, limit: int) -> tuple[FoundModel, ...]:
    """Return models of the hub that match words, the most downloaded first; blocks.

    Raises:
        ProblemError: The hub does not answer.
    """
    return search_hub(words, limit)


async def answer_search(message: SearchHub, reply: Reply) -> None:
    """Answer a search on a thread, which is abandoned if its client leaves."""
    scope = trio.CancelScope()
    reply.watch(scope.cancel)
    with scope:
        with trio.move_on_after(SEARCH_SECONDS):
            searching = partial(search, message.words, message.limit)
            try:
                reply.send(FoundModels(await trio.to_thread.run_sync(searching, abandon_on_cancel=True)))
                reply.end()
            except ProblemError as error:
                reply.fail(error.problem)
        detail = f"The hub did not answer within {SEARCH_SECONDS:g} seconds."
        reply.fail(Problem(504, "search_failed", detail))  # unless it has been answered
