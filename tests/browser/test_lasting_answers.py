"""Questions are stored before they are answered, and answers outlive tabs; what a kill cut says so."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

QUESTION = "Write a long story"
RUNNING = '.entry.answer[aria-busy="true"]'


def written(page: Page) -> int:
    """Return the length of the answers' text."""
    return len("".join(page.texts(".answer .markdown")))


def grows(page: Page, before: int) -> bool:
    return written(page) > before


def begin(page: Page, address: str, question: str = QUESTION) -> None:
    """Ask a model that repeats itself for ever, and wait for the beginning of its answer."""
    page.open(address)
    page.run("sessionStorage.clear()")
    page.open(address)
    page.choose("qwen3")
    page.press("Settings")
    page.fill("Temperature", "0")
    page.press("Settings")
    page.ask(question)


def leave(page: Page, way: str, address: str) -> None:
    """Leave a conversation with a running answer, and come back to it."""
    place = page.run("return location.hash")
    if way == "reload":
        page.driver.refresh()
    elif way == "close":
        page.driver.get("about:blank")
        page.open(address)
        page.one(f"aside .list a[href='{place}']").click()
    else:
        page.press("New chat")
        page.wait(lambda: page.texts(".entry") == [])
        page.one(f"aside .list a[href='{place}']").click()


@pytest.mark.parametrize("way", ["reload", "close", "another chat"])
def test_a_running_answer_goes_on_without_its_reader(page: Page, server: ServerProcess, way: str) -> None:
    question = f"Write a story with {way}"
    begin(page, server.address, question)
    page.wait(lambda: page.texts("aside .list a")[:1] == [question] and page.all(RUNNING))
    page.wait(lambda: written(page) > 100)
    for _ in range(2):
        leave(page, way, server.address)
        page.wait(lambda: page.texts(".entry.user .body") == [question] and page.all(RUNNING))
        page.wait(partial(grows, page, page.wait(lambda: written(page))))
        assert len(page.all(".answer")) == 1
    page.press("Stop")
    page.wait(lambda: "Stopped" in page.texts(".answer p"))
    text = page.wait(page.answers)
    leave(page, way, server.address)
    page.wait(lambda: "Stopped" in page.texts(".answer p") and page.answers() == text)
    page.press("Retry")
    page.wait(lambda: page.all(RUNNING) and written(page))
    page.press("Stop")
    page.wait(lambda: "Stopped" in page.texts(".answer p"))
    assert len(page.all(".answer")) == 1


def test_what_is_not_sent_stays_with_its_conversation(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.run("sessionStorage.clear()")
    page.open(server.address)
    page.ask("What is 2 plus 2?")
    page.answer()
    place = page.run("return location.hash")
    page.one("#message").send_keys("And three")
    page.press("New chat")
    unsent = "return document.querySelector('#message').value"
    page.wait(lambda: page.run(unsent) == "")
    page.one("#message").send_keys("Something else")
    page.driver.refresh()
    page.wait(lambda: page.all("#message") and page.run(unsent) == "Something else")
    page.one(f"aside .list a[href='{place}']").click()
    page.wait(lambda: page.run(unsent) == "And three")
    page.ask("")
    page.answer(2)
    page.driver.refresh()
    page.wait(lambda: len(page.answers()) == 2)
    assert page.run(unsent) == ""


KILLS = [pytest.param(2, id="twice"), pytest.param(10, id="ten times", marks=pytest.mark.soak)]


def process(server: ServerProcess) -> int:
    """Return the id of the process that answers."""
    with urllib.request.urlopen(f"{server.address}/health", timeout=60) as response:
        return int(json.load(response)["pid"])


def is_replaced(server: ServerProcess, killed: int) -> bool:
    try:
        return process(server) != killed
    except OSError:
        return False


def outcome(page: Page, question: str) -> str:
    """Return the fate of a question whose server was killed; empty until the page knows."""
    unsent = str(page.run("return document.querySelector('#message')?.value ?? ''"))
    asked = page.texts(".entry.user .body") == [question]
    before = written(page)
    if not asked:
        return "not stored" * (unsent == question)
    if "was cut off" in "".join(page.texts(".answer .problem")):
        return "cut off"
    if page.texts(".answer .problem"):
        return "refused"
    grows = page.run("return new Promise((resolve) => setTimeout(resolve, 500))") or written(page) > before
    return "goes on" * bool(page.all(RUNNING) and grows)


@pytest.mark.parametrize("times", KILLS)
def test_a_killed_server_leaves_every_question_and_says_what_it_cut(
    page: Page, tiny_model: Callable[..., Path], tmp_path: Path, times: int
) -> None:
    moments = random.Random(7)
    arguments = ("--supervised", str(tiny_model("qwen3")), "--db", str(tmp_path / "greenroom.db"))
    found = []
    with serving(*arguments, only_json=False) as server:
        for number in range(times):
            question = f"Write story {number}"
            begin(page, server.address, question)
            if number % 3:  # else before anything may be stored
                page.wait(lambda: written(page))
            time.sleep(moments.choice((0.0, 0.02, 0.1, 0.4, 1.0, 4.0)) * moments.random())
            killed = process(server)
            os.kill(killed, signal.SIGKILL)
            page.wait(partial(is_replaced, server, killed))
            if number % 2 == 0:
                page.driver.refresh()
            found.append(page.wait(partial(outcome, page, question)))
            if found[-1] == "not stored":
                page.one("#message").send_keys("\n")
            elif found[-1] != "goes on":
                page.press("Retry")
            page.wait(lambda: page.all(RUNNING) and written(page) > 20)
            page.press("Stop")
            page.wait(lambda: "Stopped" in page.texts(".answer p"))
            page.driver.refresh()
            page.wait(lambda: "Stopped" in page.texts(".answer p"))
            assert page.texts(".entry.user .body") == [question]
    print(found)
