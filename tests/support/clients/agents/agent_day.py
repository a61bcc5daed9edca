"""Recorded requests of coding agents at the beginning of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class AgentDay:
    """An agent's first request, and the one after its first tool call, as recorded.

    Args:
        beside: Requests sent while the first answer is generated, such as one for the conversation's title.
    """

    path: str
    headers: Mapping[str, str]
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    beside: Mapping[str, Any] | None = None
