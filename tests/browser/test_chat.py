"""The chat with real models, as a person uses it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from greenroom.tests.browser.page import Page
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def asked(server: ServerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"{server.address}{path}", timeout=60) as response:
        return json.load(response)


def test_the_first_visit_shows_a_chat_with_its_models(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.wait(lambda: len(page.texts("select option")) > 1)
    labels = page.texts("select option")
    assert re.fullmatch(r"greenroom-demo \((idle|ready), 1\.7 MB\)", labels[0])
    assert not any("tiny-voice" in label or "tiny-ears" in label for label in labels)
    page.picture("first-visit")


def test_an_answer_is_streamed_with_its_figures(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is a cat?")
    assert "call get_weather. For real answers" in page.answer()  # names keep their underscores
    print_line = page.texts(".answer .small-print")[-1]
    assert re.search(r"\d+ tokens · [\d.]+ tokens/sfirst token after .* prompt tokens cached", print_line)
    assert re.fullmatch(r"\d+ tokens · [\d.]+ tokens/s", page.texts(".answer summary")[-1])
    assert page.all("details.small-print:not([open])")
    page.ask("What is a cat?")
    page.answer(2)
    assert "continues the earlier prompt" in page.texts(".answer .small-print")[-1]
    page.picture("answer")


def test_stop_ends_the_engine_s_work_too(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.choose("qwen3")
    page.press("Settings")
    page.fill("Temperature", "0")  # it then repeats itself for ever
    page.press("Settings")
    page.ask("Write a long story")
    page.wait(lambda: len("".join(page.texts(".answer .markdown"))) > 200)
    page.wait(lambda: any(text.startswith("qwen3 (ready") for text in page.texts(".head option")))
    assert page.texts(".head p") == [""]  # not that a message loads it
    assert [request["model"] for request in asked(server, "/admin/requests")["requests"]] == ["qwen3"]
    page.press("Stop")
    page.answer()
    page.wait(lambda: asked(server, "/admin/requests")["requests"] == [])
    assert "Stopped" in page.texts(".answer p")

    def endings() -> set[str]:  # rows are written a little later, and the question has one of its own
        return {row["ending"] for row in asked(server, "/admin/audit?model=qwen3")["requests"]}

    page.wait(lambda: "cancelled" in endings())
    page.picture("stopped")


def test_reasoning_is_folded_with_its_seconds(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("Settings")
    page.fill("Reasoning", "high")
    page.press("Settings")
    page.ask("What is 2 plus 3?")
    assert page.answer() == "2 + 3 = 5."
    assert re.fullmatch(r"Reasoned( for [\d.]+ s)?", page.texts("details.reasoning summary")[0])
    assert not page.all("details.reasoning[open]")
    page.one("details.reasoning summary").click()
    assert page.texts("details.reasoning .markdown")[0].startswith("I add 2 and 3.")
    page.picture("reasoning")


def test_a_tool_is_called_and_answered(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("Settings")
    page.fill("Tools", json.dumps([TOOL]))
    page.press("Settings")
    page.ask("What is the weather in Paris?")
    page.wait(lambda: page.texts("details.call pre"))
    page.answer()
    assert json.loads(page.texts("details.call pre")[0]) == {"city": "Paris"}
    page.picture("tool-call")
    page.fill("Result of this call", '{"temperature": 21}')
    page.press("Send the result")
    assert page.answer(2)
    assert page.texts(".entry pre")[-1] == '{"temperature": 21}'


def test_an_answer_follows_a_schema(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("Settings")
    page.fill("JSON schema", "{")
    assert "This is not JSON" in page.one(".options .problem").text
    assert not page.one("#send").is_enabled()
    page.fill("JSON schema", json.dumps(SCHEMA))
    page.press("Settings")
    page.ask("Which city?")
    assert json.loads(page.answer())["city"] in ("Paris", "Rome")
    page.picture("schema")


def test_two_models_answer_one_prompt_side_by_side(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("Compare")
    page.choose("llama", "Second model")
    page.press("Settings")
    page.fill("Most tokens", "30")
    page.press("Settings")
    page.ask("Who are you?")
    page.answer(2)
    panes = page.texts(".pane .answer > header")
    assert panes == ["greenroom-demo", "llama"]
    page.picture("side-by-side")


def test_an_edit_is_a_branch_and_a_retry_replaces(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is 3 plus 3?")
    page.answer()
    page.press("Retry")
    page.wait(lambda: page.answers() == ["3 + 3 = 6."])
    page.press("Edit")
    page.fill("Edited message", "What is 4 plus 4?")
    page.press("Send as a branch")
    page.wait(lambda: page.answers() == ["4 + 4 = 8."])
    page.wait(lambda: "What is 3 plus 3? (branch)" in page.texts("aside .list a"))
    titles = page.texts("aside .list a")
    page.one(f"aside .list li:nth-child({1 + titles.index('What is 3 plus 3?')}) a").click()
    page.wait(lambda: page.answers() == ["3 + 3 = 6."])


def test_a_conversation_is_renamed_found_and_deleted(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.press("New chat")
    page.ask("Hello")
    page.answer()
    page.press("Conversation")
    page.fill("Name", "A greeting of my own")
    page.press("Rename")
    page.wait(lambda: "A greeting of my own" in page.texts("aside .list a"))
    page.fill("Search conversations", "of my own")
    page.wait(lambda: page.texts("aside .list a") == ["A greeting of my own"])
    page.press("Conversation")
    page.press("Delete")
    assert page.texts("aside .list a") == ["A greeting of my own"]
    page.press("Really delete?")
    page.wait(lambda: page.texts("aside .list a") == [])


def test_a_conversation_is_found_again_after_a_restart(page: Page, tmp_path: Path) -> None:
    database = str(tmp_path / "greenroom.db")
    with serving("greenroom-demo", "--db", database) as server:
        page.open(server.address)
        page.ask("What is 2 plus 3?")
        page.answer()
        page.wait(lambda: page.texts("aside .list a") == ["What is 2 plus 3?"])
    with serving("greenroom-demo", "--db", database) as server:
        page.open(server.address)
        page.wait(lambda: page.texts("aside .list a") == ["What is 2 plus 3?"])
        page.one("aside .list a").click()
        page.wait(lambda: page.answers() == ["2 + 3 = 5."])
        page.ask("What is 4 plus 4?")
        assert page.answer(2) == "4 + 4 = 8."
        page.picture("found-again")


def test_a_wrong_key_is_refused_and_the_right_one_accepted(page: Page, tmp_path: Path) -> None:
    with serving("greenroom-demo", "--db", str(tmp_path / "greenroom.db")) as server:
        made = urllib.request.Request(
            f"{server.address}/admin/keys",
            json.dumps({"name": "Operator", "admin": True}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(made, timeout=60) as response:
            secret = json.load(response)["secret"]
        page.open(server.address)
        page.press("Cancel", "#key-dialog")
        page.go("#control")
        page.wait(lambda: any("needs an API key" in text for text in page.texts("main .problem")))
        assert not page.run("return document.querySelector('#key-dialog').open")
        page.open(server.address)
        page.one("#key-input").send_keys("wrong")
        page.press("Use this key")
        page.wait(lambda: "opens nothing here" in "".join(page.texts("#key-dialog .problem")))
        page.picture("key")
        page.one("#key-input").clear()
        page.one("#key-input").send_keys(secret)
        page.press("Use this key")
        page.ask("What is 2 plus 3?")
        assert page.answer() == "2 + 3 = 5."
        assert page.run("return localStorage.length") == 0
        page.go("#control/keys")
        page.wait(lambda: "Operator" in page.texts("td"))
        page.picture("keys")
