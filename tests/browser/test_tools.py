"""Tools of a real MCP server in the chat and in the control room: calls, approvals, and what is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import item_events, standing_in, text_events
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

pytest.importorskip("mcp")

TOY = Path(__file__).parents[1] / "support/tools/toy_server.py"
QUESTION = "What is the weather in Paris?"
SERVERS = f"""
[mcp.toy]
command = "{sys.executable}"
args = ["{TOY}"]
allowed_tools = ["weather"]
timeout = 90

[mcp.careful]
command = "{sys.executable}"
args = ["{TOY}"]
allowed_tools = ["weather"]
require_approval = "always"
timeout = 90

[mcp.gone]
command = "/no/such/program"
default = true

[remotes.studio]
url = "http://127.0.0.1:9"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("tools")
    settings = folder / "settings.toml"
    settings.write_text(SERVERS, "utf-8")
    with serving("greenroom-demo", "--config", str(settings), "--db", str(folder / "db")) as running:
        yield running


def begin(page: Page, server: ServerProcess, *names: str) -> None:
    """Open a new chat that uses these servers."""
    page.open(server.address)
    page.run("sessionStorage.clear()")
    page.open(server.address)
    page.press("Settings")
    page.fill("Temperature", "0")
    page.fill("Most tokens", "60")
    page.wait(lambda: page.texts("[aria-label='MCP servers'] label"))
    for box in page.all("[aria-label='MCP servers'] label"):
        if (box.text in names) != box.find_element("css selector", "input").is_selected():
            box.click()
    page.press("Settings")


def call(page: Page) -> list[str]:
    return page.texts(".own-call summary, .own-call pre")


def test_a_call_and_a_lost_list_are_shown_in_the_chat_and_the_control_room(
    page: Page, tools: ServerProcess
) -> None:
    begin(page, tools, "toy", "gone")
    page.ask(QUESTION)
    page.answer()
    name, arguments, result = call(page)
    assert name.startswith("Called toy/weather in ")
    assert "Paris" in arguments
    assert result.startswith("Rain in Paris. <script>")
    assert result.endswith(r"\u{202e}\u{1b}]0;x\u{7}")
    assert "No such file" in page.texts(".answer .problem")[0]
    page.driver.refresh()
    page.wait(lambda: call(page) == [name, arguments, result])
    page.go("#control/tools")
    rows = page.wait(lambda: sorted(page.texts("tbody tr")))
    assert [row[:8] for row in rows] == ["carefuls", "gonestdi", "toystdio"]
    assert rows[1].startswith("gonestdiofailed")
    assert "No such file" in rows[1]
    assert rows[2].startswith("toystdioready")
    assert "weather" in rows[2]
    page.go("#control/remotes")
    assert page.wait(lambda: [row for row in page.texts("tbody tr") if "it cannot be reached" in row])


@pytest.mark.parametrize("decision", ["Approve", "Refuse"])
def test_an_approval_survives_a_reload_and_decides(page: Page, tools: ServerProcess, decision: str) -> None:
    begin(page, tools, "careful")
    page.ask(QUESTION)
    page.answer()
    assert page.texts(".approval code") == ["careful/weather"]
    page.driver.refresh()
    page.press(decision)
    page.answer(2)
    assert bool(call(page)) == (decision == "Approve")
    assert page.texts(".entry[aria-label='Approval'] p") == [decision.rstrip("e") + "ed"]
    assert page.answers()[-1]
    if decision == "Approve":
        page.press("Retry", ".entry:last-child")
        page.wait(lambda: page.texts(".approval code") == ["careful/weather"] and not call(page))


def test_calls_of_one_turn_are_decided_one_by_one_and_answered_together(page: Page) -> None:
    wanted = [
        {"type": "mcp_approval_request", "id": name, "server_label": "files", "name": name, "arguments": "{}"}
        for name in ("read", "delete\u202e")
    ]
    with standing_in() as server:
        server.answer = lambda: item_events(wanted)
        page.open(server.address)
        page.ask("Tidy up")
        page.answer()
        assert page.texts(".approval code") == ["files/read", r"files/delete\u{202e}"]
        server.answer = lambda: text_events(["Done"])
        page.press("Approve", ".approval:nth-of-type(1)")
        assert len(server.asked) == 1
        page.press("Refuse", ".approval:nth-of-type(2)")
        assert page.answer(2) == "Done"
        asked = server.asked[-1]
        given = [(each["approval_request_id"], each["approve"]) for each in asked["input"][-2:]]
        assert given == [("read", True), ("delete\u202e", False)]
        assert asked["input"][1:-2] == wanted
        assert asked["tools"] == [{"type": "mcp", "server_label": "files"}]
