"""The operator's system prompt, in every protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

TEXT = "four five six"
USER = {"role": "user", "content": "one two three"}
SYSTEM = {"role": "system", "content": TEXT}
CHAT = {"model": "qwen3", "max_tokens": 1, "messages": [USER]}
RESPONSE = {"model": "qwen3", "max_output_tokens": 1, "input": [USER]}
OLLAMA = {"model": "qwen3", "options": {"num_predict": 1}, "stream": False}

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT, {"messages": [SYSTEM, USER]}),
    ("/v1/chat/completions", CHAT, {"messages": [{**SYSTEM, "role": "developer"}, USER]}),
    ("/v1/messages", CHAT, {"system": TEXT}),
    ("/v1/messages/count_tokens", CHAT, {"system": TEXT}),
    ("/v1/responses", RESPONSE, {"instructions": TEXT}),
    ("/v1/responses", RESPONSE, {"input": [SYSTEM, USER]}),
    ("/v1/responses/input_tokens", RESPONSE, {"instructions": TEXT}),
    ("/api/chat", {**OLLAMA, "messages": [USER]}, {"messages": [SYSTEM, USER]}),
    ("/api/generate", {**OLLAMA, "prompt": "one two three"}, {"system": TEXT}),
]
"""Path, a request without a system message, and the fields that add one."""


async def prompt_tokens(served: Served, path: str, body: dict[str, Any]) -> int:
    """Return the number of a request's prompt tokens."""
    response = await fetch(served.server, "POST", path, body)
    answer = response.json()
    assert response.status == 200, answer
    usage = answer.get("usage") or answer
    names = ("prompt_tokens", "prompt_eval_count", "input_tokens", "cache_read_input_tokens")
    return sum(usage.get(name, 0) for name in names)


async def test_conversations_without_a_system_message_get_the_operators(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "prompt").write_text(TEXT + "\n")
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    prompted = attrs.evolve(settings, system_prompt=str(tmp_path / "prompt"))
    async with serving(settings) as without, serving(prompted) as with_prompt:
        for path, bare, own in CASES:
            expected = await prompt_tokens(without, path, {**bare, **own})
            assert await prompt_tokens(without, path, bare) < expected, path
            assert await prompt_tokens(with_prompt, path, bare) == expected, path
            assert await prompt_tokens(with_prompt, path, {**bare, **own}) == expected, path
