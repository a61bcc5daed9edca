"""Everybody can use the pages: axe-core finds nothing serious, and the keyboard reaches all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from selenium.webdriver import Keys

from greenroom.tests.browser.page import SCREENS, Page
from greenroom.tests.support.servers.server_processes import ServerProcess

AXE = Path(os.environ.get("AXE", ""))
PLACES = {
    "#chat": ".composer",
    "#control/models": ".card",
    "#control/requests": ".server",
    "#control/downloads": ".card",
    "#control/log": ".lines.mono li",
    "#control/settings": "tbody td",
    "#control/usage": "tbody td",
}
"""Places, each with what stands there once it is loaded."""
_STEP = """
const on = document.activeElement;
reached.add(on);
const missed = wanted.filter((each) => each.isConnected && !reached.has(each));
return [on.tagName, getComputedStyle(on).outlineStyle, missed.map((each) => each.outerHTML.slice(0, 120))]"""


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: `make browser` fetches it with npm")
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious(page: Page, server: ServerProcess, screen: str) -> None:
    page.open(server.address)
    page.show(screen)
    page.ask("What is a cat?")
    page.answer()
    page.press("Settings")
    found: list[str] = []
    page.run(AXE.read_text(encoding="utf-8") + "; window.axe = axe")
    for place, loaded in PLACES.items():
        page.go(place)
        page.one(loaded)
        page.next_frame()
        violations = page.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
        )
        found += [
            f"{place} {each['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for each in violations
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]
    assert found == []


@pytest.mark.parametrize("place", ["#chat", "#control/models", "#control/log"])
def test_the_keyboard_reaches_everything(page: Page, server: ServerProcess, place: str) -> None:
    page.open(server.address)
    page.ask("What is a cat?")
    page.answer()
    page.go(place)
    page.one(PLACES[place])
    page.next_frame()
    wanted = page.run(
        "window.wanted = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]"
        ".filter((each) => each.checkVisibility() && !each.disabled); return wanted.length"
    )
    assert wanted > 8
    page.run(
        "window.reached = new Set(); document.activeElement.blur(); window.getSelection().removeAllRanges()"
    )
    for _ in range(wanted + 30):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        tag, outline, missed = page.run(_STEP)
        assert tag in ("BODY", "MAIN") or outline != "none", tag
        if not missed:
            break
    assert missed == []
