"""The prefix cache as a client sees it: after crashes and restarts, and in the usage figures."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from greenroom.tests.support.servers.server_processes import ServerProcess, serving

SYSTEM = "You answer in one word. " + " ".join(f"Rule {i}: never say {i * i}." for i in range(60))


def ask(server: ServerProcess, *said: str, **fields: Any) -> tuple[str, int, int]:
    """Send user and assistant messages in turn; return the answer's text, prompt tokens and cached tokens."""
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    messages = [{"role": "system", "content": SYSTEM}, *turns]
    body = {"model": "default", "messages": messages, "temperature": 0, "max_tokens": 40}
    answer = httpx2.post(f"{server.address}/v1/chat/completions", json=body | fields, timeout=600).json()
    usage = answer["usage"]
    text = answer["choices"][0]["message"]["content"]
    return text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["gemma3", pytest.param("qwen3_5", marks=pytest.mark.soak)])
def test_a_killed_server_remembers(tiny_model: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    arguments = [str(tiny_model(kind)), "--prefix-cache-dir", str(tmp_path), "--log-level", "debug"]
    with serving(*arguments) as server:
        first = ask(server, "Hello")
        assert first[2] == 0
        while not server.wait_for("prefix written")["file"].startswith("state"):
            pass
        server.process.kill()
        server.process.wait(60)
    with serving(*arguments) as server:
        again = ask(server, "Hello")
        assert (again[0], again[1]) == (first[0], first[1])
        assert 0.9 * again[1] < again[2] < again[1]
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    with serving(*arguments) as server:
        longer = ask(server, "Hello", again[0], "And now?")
        assert longer[2] > 0.95 * again[1]
        alone = ask(server, "And now?")
        assert 0.9 * alone[1] < alone[2] < alone[1]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "lfm2"])
def test_usage_tells_what_was_not_computed(tiny_model: Callable[..., Path], kind: str) -> None:
    # Tokens at an answer's end may differ when retokenised. Fewer than 32 tokens get no snapshot.
    recomputed = 8 if kind == "qwen3" else 8 + 32
    with serving(str(tiny_model(kind))) as server:
        said = ["Hello"]
        before = 0
        for turn in range(10):
            text, prompt, cached = ask(server, *said, n=2 if turn == 3 else 1)
            assert cached < prompt
            assert cached >= before - recomputed
            before = prompt
            said += [text, f"Question {turn}?"]
