"""Readers who hear the pages: landmarks, names, announcements, and a focus that goes where one expects it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from selenium.webdriver import Keys

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in, text_events
from greenroom.tests.support.servers.server_processes import ServerProcess

OPERATED = (
    "button",
    "link",
    "textbox",
    "combobox",
    "checkbox",
    "searchbox",
    "spinbutton",
    "DisclosureTriangle",
)
TABS = ("models", "requests", "downloads", "log", "settings", "keys", "usage", "inspector")


def nodes(page: Page) -> list[tuple[str, str]]:
    """Return the roles and names of the tree that the browser gives to a screen reader."""
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [
        (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
        for node in tree
        if not node.get("ignored") and "role" in node
    ]


def tabbed(page: Page, times: int) -> list[str]:
    """Return the names of that many elements that the key Tab comes to."""
    names = []
    for _ in range(times):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        script = (
            "const on = document.activeElement; return on.ariaLabel || (on.labels?.[0] ?? on).textContent"
        )
        names.append(str(page.run(script)).strip())
    return names


def unnamed(found: Sequence[tuple[str, str]]) -> list[str]:
    return [role for role, name in found if role in OPERATED and not name.strip()]


def test_the_chat_has_landmarks_and_everything_a_name(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is a cat?")
    page.answer()
    page.press("Settings")
    found = nodes(page)
    landmarks = {
        *(("banner", ""), ("navigation", "Pages"), ("complementary", "Conversations")),
        *(("region", "Conversation"), ("region", "Messages"), ("region", "New message")),
    }
    assert landmarks <= set(found)
    assert {role for role, _ in found} >= {"main", "status", "alert"}
    assert ("heading", "Chat") in found
    assert ("article", "You") in found
    assert ("article", "Answer of greenroom-demo") in found
    assert ("textbox", "Message") in found
    assert unnamed(found) == []


@pytest.mark.parametrize("tab", TABS)
def test_a_tab_of_the_control_room_has_a_heading_and_everything_a_name(
    page: Page, server: ServerProcess, tab: str
) -> None:
    page.open(server.address, f"#control/{tab}")
    page.wait(lambda: page.all(".server"))
    page.wait(lambda: not page.all(".sheet .hint"))
    found = nodes(page)
    assert [name for role, name in found if role == "navigation"] == ["Pages", "Control room"]
    assert page.run("return document.querySelectorAll('h1').length") == 1
    assert not {"img", "SvgRoot"} & {role for role, name in found if not name}
    assert unnamed(found) == []


def test_an_answer_is_announced_when_it_has_ended_and_not_token_by_token(page: Page) -> None:
    goes_on = threading.Event()

    def pieces() -> Iterator[str]:
        yield "A cat is "
        goes_on.wait(60)
        yield "an animal."

    watch = """
    window.said = [];
    const isLive = (node) => node.parentElement?.closest('[role=status], [role=alert], [aria-live]');
    new MutationObserver((changes) => changes.forEach(({ target }) => {
        if (target.textContent && (isLive(target) || target.role === 'status')) said.push(target.textContent);
    })).observe(document.body, { subtree: true, childList: true, characterData: true });
    """
    with standing_in() as server:
        server.answer = lambda: text_events(pieces())
        page.open(server.address)
        page.one("#message")
        page.run(watch)
        page.ask("What is a cat?")
        try:
            page.wait(lambda: "A cat is" in "".join(page.texts(".answer .markdown")))
            page.wait(lambda: page.run("return said.filter((each) => /begins/.test(each)).length") == 1)
            assert page.run("return said.filter((each) => /A cat is/.test(each))") == []
        finally:
            goes_on.set()
        page.answer()
        page.wait(lambda: "The answer has ended: A cat is an animal." in page.run("return said"))
        assert page.run("return said.filter((each) => /A cat is/.test(each)).length") == 1


def test_a_failure_is_an_alert_or_stands_in_its_answer(page: Page) -> None:
    def answer() -> Iterator[tuple[str, Any]]:
        yield "error", {"type": "error", "error": {"message": "The worker was lost."}}

    with standing_in() as server:
        server.answer = answer
        page.open(server.address)
        page.ask("Fail")
        page.answer()
        assert page.texts(".answer .problem") == ["The worker was lost."]
        page.wait(lambda: "The answer has ended." in page.texts("[role=status]")[-1])


def test_the_focus_goes_from_the_top_to_the_message(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.one("aside .faint")
    page.wait(lambda: len(page.texts("select option")) > 1)
    page.run("document.activeElement.blur(); getSelection().removeAllRanges()")
    found = tabbed(page, 7)
    assert found[:5] == ["Skip to the content", "Chat", "Control room", "Key", "New chat"]
    page.run("document.querySelector('.skip').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait(lambda: page.run("return document.activeElement.id") == "main")
    page.go("#control/models")
    page.one(".server")
    page.run("document.querySelector('.skip').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait(lambda: page.run("return document.activeElement.id") == "main")
    assert page.run("return location.hash") == "#control/models"


def test_a_dialog_takes_the_focus_and_gives_it_back(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is a cat?")
    page.answer()
    page.one("#keep").send_keys(Keys.ENTER)
    page.wait(lambda: page.run("return document.activeElement.closest('dialog')?.ariaLabel"))
    assert ("dialog", "This conversation") in nodes(page)
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.wait(lambda: page.run("return document.activeElement.id") == "keep")
    page.one("#key").send_keys(Keys.ENTER)
    page.wait(lambda: page.run("return document.activeElement.id") == "key-input")
    assert ("dialog", "API key") in nodes(page)
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.wait(lambda: page.run("return document.activeElement.id") == "key")


@pytest.mark.parametrize("act", ["Retry", "Branch", "Edit"])
def test_an_act_of_the_keyboard_leaves_the_focus_in_the_messages(
    page: Page, server: ServerProcess, act: str
) -> None:
    page.open(server.address)
    page.ask("What is a cat?")
    page.answer()
    buttons = "[...document.querySelectorAll('.entry button:enabled')]"
    found = f"return {buttons}.find((each) => each.textContent === arguments[0])"
    page.wait(lambda: page.run(found, act)).send_keys(Keys.ENTER)
    if act == "Edit":
        page.wait(lambda: page.run("return document.activeElement.tagName") == "TEXTAREA")
        page.driver.switch_to.active_element.send_keys(" And a dog?", Keys.TAB)
        page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait(lambda: page.run("return document.activeElement.closest('.pane')"))
    page.answer()
    assert page.run("return document.activeElement !== document.body")


@pytest.mark.parametrize(("preference", "animation"), [("reduce", "none"), ("no-preference", "pulse")])
def test_nothing_moves_for_those_who_prefer_it(page: Page, preference: str, animation: str) -> None:
    goes_on = threading.Event()

    def answer() -> Iterator[tuple[str, Any]]:
        goes_on.wait(60)
        yield from text_events(["Hello"])

    feature = {"name": "prefers-reduced-motion", "value": preference}
    with standing_in() as server:
        server.answer = answer
        page.open(server.address)
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        page.ask("Wait")
        try:
            page.one(".working")
            script = "return getComputedStyle(document.querySelector('.working'), '::before').animationName"
            assert page.run(script) == animation
            running = "return document.getAnimations().length"
            assert (page.run(running) == 0) is (preference == "reduce")
        finally:
            goes_on.set()
        page.answer()
