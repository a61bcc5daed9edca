"""What an agent sends at the beginning of its day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class AgentDay:
    """An agent's first request and the one after its first call of a tool, as they were recorded.

    Args:
        beside: What it asks while the first answer is written, such as a title for the conversation.
    """

    path: str
    headers: Mapping[str, str]
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    beside: Mapping[str, Any] | None = None
