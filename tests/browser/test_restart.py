"""A server that ends and comes back is met again by pages that stayed open."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

from greenroom.tests.browser.page import Page
from greenroom.tests.support.servers.free_port import free_port
from greenroom.tests.support.servers.server_processes import failing, serving


def test_an_answer_that_a_restart_cut_is_asked_again(
    page: Page, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    database = str(tmp_path / "greenroom.db")
    model = str(tiny_model("qwen3"))
    paced = failing("a crash", "no model", pace=0.02)
    place = ("--port", str(free_port()), "--db", database)
    with serving(model, *place, program=paced) as server:
        page.open(server.address)
        page.press("Settings")
        page.fill("Temperature", "0")
        page.press("Settings")
        page.ask("Write a long story")
        page.wait(lambda: len("".join(page.texts(".answer .markdown"))) > 20)
        page.wait(lambda: page.run(_LOADED, "/control/metrics.js"))  # the other page, which comes later
    # It ended in the middle of the answer, and may come back.
    page.wait(lambda: page.texts(".answer .working") == ["The connection is lost: looks for the answer"])
    page.go("#control/models")
    page.wait(lambda: page.texts("main .problem") == ["The server does not answer."])
    page.wait(lambda: page.one("#status").text == "Reconnecting …")
    with serving("greenroom-demo", model, *place):
        page.wait(lambda: page.texts("#status") == [""])
        page.wait(lambda: "Model greenroom-demo" in page.run(_CARDS))
        page.go("#chat")
        page.wait(lambda: "was cut off" in "".join(page.texts(".answer .problem")))
        assert page.wait(page.answers)[0]
        page.press("Settings")
        page.fill("Most tokens", "5")
        page.press("Settings")
        page.press("Retry")
        page.wait(lambda: page.texts(".answer p.faint") == ["Cut: it has as many tokens as it may."])
        page.ask("And then?")
        page.answer(2)


_LOADED = "return performance.getEntriesByType('resource').some(({ name }) => name.endsWith(arguments[0]))"
_CARDS = "return [...document.querySelectorAll('.card')].map((each) => each.ariaLabel)"


def test_the_cards_follow_a_server_that_was_killed(page: Page) -> None:
    with serving("--supervised", "greenroom-demo", "--db", ":memory:", only_json=False) as server:
        page.open(server.address, "#control/models")
        page.press("Load greenroom-demo")
        state = ".cards .state"
        page.wait(lambda: page.texts(state) == ["ready"])
        with urllib.request.urlopen(f"{server.address}/health", timeout=60) as response:
            os.kill(json.load(response)["pid"], signal.SIGKILL)
        page.wait(lambda: "restarted once since this page opened" in page.one(".server").text)
        page.wait(lambda: page.texts(state) == ["idle"])
        page.press("Load greenroom-demo")
        page.wait(lambda: page.texts(state) == ["ready"])
