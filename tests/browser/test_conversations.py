"""Conversations are kept: of one model and of two, with a store and without, and as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in, text_events
from greenroom.tests.support.servers.server_processes import ServerProcess, serving


@pytest.fixture(scope="module")
def storeless(tiny_model: Callable[..., Path]) -> Iterator[ServerProcess]:
    """A server that stores no conversations."""
    models = ("greenroom-demo", str(tiny_model("llama")))
    with serving(*models, "--db", ":memory:", "--no-store-responses") as running:
        yield running


def compare(page: Page, question: str) -> tuple[str, str]:
    """Ask two models, and return the texts of both panes once they are kept."""
    page.press("Compare")
    page.choose("llama", "Second model")
    page.press("Settings")
    page.fill("Most tokens", "12")
    page.press("Settings")
    page.ask(question)
    page.answer(2)
    page.wait(lambda: question in page.texts("aside .list a"))
    first, second = page.answers()
    return first, second


@pytest.mark.parametrize("place", ["server", "storeless"])
def test_both_panes_of_two_models_are_found_again(
    page: Page, place: str, request: pytest.FixtureRequest
) -> None:
    server: ServerProcess = request.getfixturevalue(place)
    page.open(server.address)
    page.run("sessionStorage.clear()")
    page.open(server.address)
    question = f"Who are you, {place}?"
    kept = compare(page, question)
    where = "Kept by the server" if place == "server" else "Kept in this tab only"
    page.wait(lambda: any(where in text for text in page.texts("aside .faint")))
    assert page.texts(".composer .problem") == [""]
    page.ask("And then?")
    page.answer(4)
    page.wait(lambda: linked(page))
    page.driver.refresh()
    page.wait(lambda: len(page.answers()) == 4 and page.texts("aside .list a").count(question) == 1)
    panes = [page.texts(f".pane:nth-child({number}) .answer > .markdown") for number in (1, 2)]
    assert (panes[0][0], panes[1][0]) == kept
    models = page.run("return [...document.querySelectorAll('.head select')].map((each) => each.value)")
    assert models == ["greenroom-demo", "llama"]
    page.press("Conversation")
    page.press("Delete")
    page.press("Really delete?")
    page.wait(lambda: question not in page.texts("aside .list a"))
    page.open(server.address)
    page.wait(lambda: page.one("aside .faint"))
    assert question not in page.texts("aside .list a")


def linked(page: Page) -> bool:
    """Return whether the address names the conversation, and nothing is being kept."""
    named = "#chat/" in str(page.run("return location.hash"))
    return named and any(text.startswith("Kept") for text in page.texts("aside .faint"))


def test_a_comparison_that_ends_leaves_two_conversations(page: Page, storeless: ServerProcess) -> None:
    page.open(storeless.address)
    compare(page, "What ends?")
    page.press("Compare")
    page.wait(lambda: page.texts("aside .list a").count("What ends?") == 2)
    assert len(page.all(".pane")) == 1


@pytest.fixture
def downloads(page: Page, tmp_path: Path) -> Path:
    """Return the folder into which the browser saves files."""
    folder = tmp_path / "saved"
    folder.mkdir()
    allowed = {"behavior": "allow", "downloadPath": str(folder)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    return folder


def saved(page: Page, folder: Path, name: str) -> str:
    """Return the text of a saved file, once it is whole."""
    path = folder / name
    page.wait(lambda: path.is_file() and not list(folder.glob("*.crdownload")))
    return path.read_text(encoding="utf-8")


def test_a_conversation_is_saved_as_markdown_and_as_json(
    page: Page, server: ServerProcess, downloads: Path
) -> None:
    page.open(server.address)
    page.press("Settings")
    page.fill("System prompt", "Be brief.")
    page.fill("Reasoning", "high")
    page.press("Settings")
    page.ask("What is 2 plus 3?")
    page.answer()
    page.press("Conversation")
    page.press("Save as Markdown")
    text = saved(page, downloads, "What is 2 plus 3.md")
    assert text.startswith("# What is 2 plus 3?\n\n## System\n\nBe brief.\n\n## You\n\nWhat is 2 plus 3?\n\n")
    assert "## greenroom-demo\n\n<details><summary>Reasoning</summary>\n\n```\nI add 2 and 3." in text
    assert text.endswith("\n\n2 + 3 = 5.\n")
    page.press("Save as JSON")
    document: dict[str, Any] = json.loads(saved(page, downloads, "What is 2 plus 3.json"))
    assert (document["title"], document["model"]) == ("What is 2 plus 3?", "greenroom-demo")
    assert document["settings"] == {"system": "Be brief.", "effort": "high"}
    asked, reasoned, answered = document["items"]
    assert asked["content"] == [{"type": "input_text", "text": "What is 2 plus 3?"}]
    assert reasoned["type"] == "reasoning"
    assert answered["content"] == [{"type": "output_text", "text": "2 + 3 = 5."}]


def test_a_hostile_title_names_no_path_and_turns_no_letters(page: Page, downloads: Path) -> None:
    title = "../../.bashrc\u202efdp.exe\u0000\u2066 <img src=x>"
    with standing_in() as server:
        server.documents["/v1/conversations"] = {"data": [], "has_more": False}
        described = {"id": "conv_1", "metadata": {"title": title, "model": "stand-in"}}
        items = [{"id": "i1", "type": "message", "role": "user", "content": "```\n# No heading"}]
        server.documents["/v1/conversations/conv_1"] = described
        server.documents["/v1/conversations/conv_1/items"] = {"data": items, "has_more": False, "last_id": ""}
        page.open(server.address, "#chat/conv_1")
        page.wait(lambda: page.texts(".entry"))
        page.press("Conversation")
        page.press("Save as JSON")
        page.wait(lambda: [path.name for path in downloads.iterdir()] == ["bashrcfdpexe img srcx.json"])


def test_calls_of_the_server_that_failed_are_saved_with_their_reasons(page: Page, downloads: Path) -> None:
    broken = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "No such city"}]}
    call = {"type": "mcp_call", "server_label": "toy", "name": "add", "arguments": "{}", "output": None}
    with standing_in() as server:
        items = [{**call, "error": error} for error in (broken, "gone", {"code": 5})]
        server.documents["/v1/conversations"] = {"data": [], "has_more": False}
        server.documents["/v1/conversations/conv_1"] = {"id": "conv_1", "metadata": {"title": "Calls"}}
        server.documents["/v1/conversations/conv_1/items"] = {"data": items, "has_more": False, "last_id": ""}
        page.open(server.address, "#chat/conv_1")
        page.wait(lambda: page.texts(".entry"))
        page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.texts(".own-call .result") == ["No such city", "gone", '{"code":5}']
        page.press("Conversation")
        page.press("Save as Markdown")
        text = saved(page, downloads, "Calls.md")
    for reason in ("No such city", "gone", '{"code":5}'):
        assert f"Result\n\n```\n{reason}\n```" in text


@pytest.mark.parametrize("settings", ["null", '{"schema": {"type": "object"}, "tools": [1], "system": 5}'])
def test_a_conversation_of_another_client_goes_on(page: Page, settings: str) -> None:
    output = [{"type": "input_text", "text": "17 degrees"}, {"type": "input_text", "text": "and rain"}]
    weather = {"type": "input_text", "text": "Weather?"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,=A_"}
    items = [
        {"id": "i1", "type": "message", "role": "user", "content": [weather, image]},
        {"id": "i2", "type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"id": "i3", "type": "function_call_output", "call_id": "c1", "output": output},
    ]
    with standing_in() as server:
        described = {"id": "conv_1", "metadata": {"model": "stand-in", "settings_0": settings}}
        server.documents["/v1/conversations"] = {"data": [], "has_more": False}
        server.documents["/v1/conversations/conv_1"] = described
        server.documents["/v1/conversations/conv_1/items"] = {"data": items, "has_more": False, "last_id": ""}
        page.open(server.address, "#chat/conv_1")
        page.wait(lambda: "17 degrees\nand rain" in page.texts(".entry pre"))
        assert page.texts(".entry.user .body") == ["Weather?🖼 an image elsewhere"]
        page.press("Settings")
        page.ask("And tomorrow?")
        page.wait(lambda: page.answers())
        sent = {item.get("type"): item for item in server.asked[-1]["input"]}
        assert sent["function_call_output"]["output"] == output
        assert not {"instructions", "tools", "text"} & set(server.asked[-1])


def test_a_retry_of_an_earlier_answer_begins_a_branch(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is 1 plus 7?")
    page.answer()
    page.ask("What is 4 plus 4?")
    page.answer(2)
    page.press("Retry")  # the first answer's
    page.wait(lambda: page.answers() == ["1 + 7 = 8."])
    page.wait(lambda: "What is 1 plus 7? (branch)" in page.texts("aside .list a"))
    titles = page.texts("aside .list a")
    page.one(f"aside .list li:nth-child({1 + titles.index('What is 1 plus 7?')}) a").click()
    page.wait(lambda: page.answers() == ["1 + 7 = 8.", "4 + 4 = 8."])


def test_a_visit_to_the_control_room_leaves_the_chat_as_it_was(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.choose("qwen3")
    page.press("Settings")
    page.fill("Temperature", "0")
    page.press("Settings")
    page.ask("Write a long story")
    page.wait(lambda: len("".join(page.texts(".answer .markdown"))) > 100)
    page.one("#message").send_keys("A draft")
    page.go("#control/requests")
    page.wait(lambda: any("decode:" in cell for cell in page.texts("td")))
    page.go("#chat")
    before = len(page.wait(lambda: "".join(page.texts(".answer .markdown"))))
    page.wait(lambda: len("".join(page.texts(".answer .markdown"))) > before)
    assert page.run("return document.querySelector('#message').value") == "A draft"
    page.one("#message").send_keys("\ue00c")  # Escape
    page.wait(lambda: "Stopped" in page.texts(".answer p"))
    page.go("#control/models")
    page.wait(lambda: page.all(".server"))
    assert page.run("return location.hash") == "#control/models"


def test_results_of_several_calls_are_sent_together(page: Page) -> None:
    with standing_in() as server:
        server.answer = lambda: text_events(["Both"], call="first", second_call="second")
        page.open(server.address)
        page.ask("Call")
        page.answer()
        page.wait(lambda: len(page.all("details.call textarea")) == 2)
        for number, place in enumerate(page.all("details.call textarea")):
            place.send_keys(f"result {number}")
        server.answer = lambda: text_events(["Thanks"])
        page.press("Send the results")
        page.answer(2)
    results = [item for item in server.asked[-1]["input"] if item["type"] == "function_call_output"]
    assert [item["output"] for item in results] == ["result 0", "result 1"]


def test_wrong_settings_lose_no_answer(page: Page) -> None:
    wrong = "Settings: This must be a list of objects."
    with standing_in() as server:
        page.open(server.address)
        page.ask("Hello?")
        assert page.answer() == "Hello"
        page.press("Settings")
        page.fill("Tools", "[null]")
        page.wait(lambda: wrong in page.texts(".composer .problem"))
        page.press("Retry")
        assert page.answers() == ["Hello"]
        page.press("Edit")
        page.fill("Edited message", "Hello again?")
        page.press("Send as a branch")
        page.wait(lambda: page.texts(".answer .problem") == [wrong])
        page.fill("Tools", "[]")
        page.press("Retry")
        page.wait(lambda: page.answers() == ["Hello"])
        assert len(server.asked) == 2


@pytest.mark.parametrize("models", [[], [{"id": "e", "state": "ready", "type": "embeddings"}]])
def test_a_server_without_a_model_that_writes_says_so(page: Page, models: list[dict[str, str]]) -> None:
    with standing_in() as server:
        server.documents["/v1/models"] = {"data": models}
        page.open(server.address)
        page.wait(lambda: page.texts(".head option") == ["No model here writes."])
        assert page.texts(".composer .problem") == ["No model here writes."]
        assert not page.one("#send").is_enabled()
