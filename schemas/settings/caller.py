"""The caller of a request: whose objects it may see, and what its key allows."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import attrs

from greenroom.schemas.stored import EVERYBODY, STRANGERS


@attrs.frozen
class Caller:
    """The caller of a request, known by its key before a body is read.

    Args:
        owner: The key's id, which owns what the caller stores; `EVERYBODY` where no key was needed,
            `STRANGERS` where others need one.
        admin: True if it may use the routes for operators and the objects of all owners.
        models: Names and patterns of the models that it may use; empty for all.
        tools: Names and patterns of the tools that its requests may declare; empty for all.
        requests_per_minute: Limit on its requests; None for none.
        tokens_per_minute: Limit on its tokens, of prompts and answers; None for none.
        concurrent: Limit on its requests that wait or run at once; None for none.
        priority: Priority of its requests: above 0 they wait behind others, below 0 they go before others.
        expires: Unix time in seconds at which the key expires; None for never.
        metrics: True if it opens nothing but `/metrics`.
        name: The key's name for people; empty without a key.
        downloads: True if its requests may bring models of the hub, where the settings allow that.
    """

    owner: str = EVERYBODY
    admin: bool = True
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    priority: int = 0
    expires: float | None = None
    metrics: bool = False
    name: str = attrs.field(default="", eq=False)
    downloads: bool = False

    @property
    def may_download(self) -> bool:
        """True if requests may bring models of the hub."""
        return self.admin or self.downloads

    @property
    def has_key(self) -> bool:
        return self.owner not in (EVERYBODY, STRANGERS)


ANYBODY = Caller()
"""The caller of every request while no API keys exist, with all rights."""
STRANGER = Caller(owner=STRANGERS, admin=False)
"""The caller of a request without a key that is answered although keys exist."""


def is_allowed(patterns: Sequence[str], name: str) -> bool:
    """Return whether names and patterns allow a name; an empty list allows every name."""
    return not patterns or any(fnmatchcase(name, each) for each in patterns)
