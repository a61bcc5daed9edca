"""A reader who waits is told why: a queue, a model that has no memory yet, a load, a prompt."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in, text_events
from greenroom.tests.support.servers.server_processes import failing, serving

NEWS: dict[str, dict[str, Any]] = {
    "Waits in the queue, place 3, about 12 s": {"status": "queued", "position": 3, "eta_ms": 12_000},
    "Waits for the model, unloading llama": {"status": "waiting_for_model", "unloading": ["llama"]},
    "Downloading, 5.0 MB of 20 MB": {
        "status": "downloading",
        "downloaded_bytes": 5_000_000,
        "download_bytes": 20_000_000,
    },
    "Loading the model, 1.0 GB of 4.0 GB": {
        "status": "loading",
        "loaded_bytes": 1_000_000_000,
        "required_bytes": 4_000_000_000,
    },
    "Reading the prompt: 512 of 4096 tokens": {"total": 4_096, "processed": 512},
}


@pytest.mark.parametrize("line", NEWS)
def test_each_kind_of_waiting_has_its_line(page: Page, line: str) -> None:
    goes_on = threading.Event()

    def answer() -> Iterator[tuple[str, Any]]:
        member = "prompt_progress" if "total" in NEWS[line] else "queue_status"
        yield "response.in_progress", {"type": "response.in_progress", member: NEWS[line]}
        goes_on.wait(60)
        yield from text_events(["Hello"])

    with standing_in() as server:
        server.answer = answer
        page.open(server.address)
        page.ask("Wait")
        try:
            page.wait(lambda: page.texts(".working") == [line])
        finally:
            goes_on.set()
        assert page.answer() == "Hello"
        assert page.texts(".working") == []


def test_the_queue_and_an_eviction_are_seen_while_one_waits(
    page: Page, tiny_model: Callable[..., Path]
) -> None:
    program = failing("a crash", "no model", pace=0.05)
    models = (str(tiny_model("qwen3")), str(tiny_model("llama")))
    settings = ("--max-loaded-models", "1", "--max-batch", "1", "--db", ":memory:")
    with serving(*models, *settings, program=program) as server:
        page.open(server.address)
        page.choose("qwen3")
        page.press("Settings")
        page.fill("Temperature", "0")
        page.press("Settings")
        other = {"model": "qwen3", "input": "Long", "stream": True, "store": False, "temperature": 0}
        page.run(
            "window.other = new AbortController(); fetch('/v1/responses', {method: 'POST', "
            "signal: other.signal, headers: {'content-type': 'application/json'}, body: arguments[0]})"
            ".then((response) => response.text()).catch(() => {})",
            json.dumps(other),
        )
        page.wait(lambda: page.run("return fetch('/admin/requests').then((r) => r.text())").count("decode"))
        page.ask("Me too")
        page.wait(lambda: any("Waits in the queue" in text for text in page.texts(".working")))
        page.picture("queue")
        page.run("other.abort()")
        page.wait(lambda: "".join(page.texts(".answer .markdown")))
        page.press("Stop")
        page.answer()
        page.choose("llama")
        page.wait(lambda: any("unloads qwen3." in text for text in page.texts(".head p")))
        page.picture("evicts")
        page.press("Settings")
        page.fill("Most tokens", "5")
        page.press("Settings")
        page.ask("And you?")
        page.answer(2)
        page.go("#control/models")
        page.wait(lambda: "1 eviction" in "".join(page.texts("[aria-label='Model qwen3'] p")))
        assert page.texts("[aria-label='Model llama'] .state") == ["ready"]
        page.picture("evicted")
