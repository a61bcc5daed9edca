"""Output of models, tools and clients is data: no script runs, and nothing is asked of others."""

from __future__ import annotations

from functools import partial

import pytest

from greenroom.tests.browser.hostile_texts import CORPUS
from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import STATUS, standing_in, text_events

MARK = "The end of the answer."


@pytest.mark.parametrize("name", CORPUS)
def test_no_answer_runs_or_fetches_anything(page: Page, name: str) -> None:
    text = CORPUS[name]
    with standing_in() as server:
        server.answer = lambda: text_events(
            [text, f"\n\n```\n```\n\n{MARK}"], reasoning=text, call=text, tool=text
        )
        page.open(server.address)
        page.ask("Attack")
        page.answer()
        assert len(page.texts(".own-call code, .approval code")) == 3
        page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        inside = page.run(
            "return [...document.querySelectorAll('.markdown *')].map((each) => each.tagName).filter("
            "(name) => /^(SCRIPT|IMG|SVG|IFRAME|OBJECT|STYLE|LINK|FORM|INPUT|BASE|META|BODY)$/i.test(name))"
        )
        assert inside == []
        links = page.run(
            "return [...document.querySelectorAll('.markdown a[href]')]"
            ".map((each) => [each.protocol, each.rel])"
        )
        assert all(protocol in ("http:", "https:", "mailto:") for protocol, _ in links)
        assert all("noreferrer" in rel for _, rel in links)
        assert len(links) >= 4 or name != "good links"
        page.wait(lambda: page.run("return document.readyState") == "complete")
        assert page.offences() == []
        # The page is alive: it takes another message.
        server.answer = lambda: text_events(["Alive"])
        page.ask("Still there?")
        assert page.answer(2) == "Alive"


def test_ten_megabytes_in_a_line_leave_the_page_alive(page: Page) -> None:
    with standing_in() as server:
        server.answer = lambda: text_events(["x" * 10_000_000], call="y" * 1_000_000)
        page.open(server.address)
        page.ask("Attack")
        page.answer()
        page.wait(lambda: any("more characters are not shown" in text for text in page.texts(".markdown p")))
        page.press("New chat")
        page.wait(lambda: page.texts(".entry") == [])


def test_names_and_log_lines_are_data_too(page: Page) -> None:
    attack = "".join((CORPUS["script"], CORPUS["handlers"], CORPUS["bidi"]))
    model: dict[str, object] = {
        **{"id": attack, "state": attack, "since": 0, "pinned": False, "expires_at": None, "bytes": 1},
        **{"load_progress": 0, "download": None, "running": 0, "waiting": 0, "restarts": 0, "rows": []},
        **{"problem": attack, "last_error": attack},
    }
    setting = {"name": attack, "value": attack, "source": attack, "secret": False, "set": True}
    with standing_in() as server:
        documents = server.documents
        documents["/v1/models"] = {"data": [{"id": attack, "state": attack, "type": "text"}]}
        documents["/v1/conversations"] = {
            "data": [{"id": "conv_1", "metadata": {"title": attack}}],
            "has_more": False,
        }
        documents["/admin/models"] = {"models": [model]}
        documents["/admin/status"] = {**STATUS, "version": attack, "problems": [attack]}
        documents["/admin/settings"] = {"settings": [setting]}
        server.events["/admin/events"] = [
            ("load", {"model": attack, "stage": attack, "detail": attack, "time": 1}),
            ("error", {"error": {"message": attack}}),
        ]
        server.events["/admin/logs"] = [
            ("log", {"event": attack, "level": attack, attack: attack}),
            ("error", {"error": {"message": attack}}),
        ]
        page.open(server.address)
        page.wait(lambda: attack in page.texts("aside .list a"))
        for place, selector in (("models", "h3"), ("settings", "td code"), ("log", ".lines strong")):
            page.go(f"#control/{place}")
            page.wait(partial(_shows, page, selector, attack))
        page.wait(lambda: len(page.texts(".lines:not(.mono) li")) == 2)
        assert all("Invalid" not in line and "undefined" not in line for line in page.texts(".lines li"))
        assert page.offences() == []


def test_the_page_never_sends_its_key_elsewhere(page: Page) -> None:
    with standing_in() as server, standing_in() as other:
        server.answer = lambda: text_events([f"[x]({other.address}/)"])
        page.open(server.address)
        page.run("sessionStorage.setItem('greenroom-key', 'secret')")
        page.ask("Attack")
        page.answer()
        link = "return [...document.querySelectorAll('.markdown a')].map((each) => [each.target, each.rel])"
        assert page.run(link) == [["_blank", "noreferrer noopener"]]
        blocked = page.driver.execute_async_script(
            "const [address, done] = arguments;"
            "fetch(`${address}/v1/models`).then(() => done('sent'), () => done('refused'))",
            other.address,
        )
        assert blocked == "refused"
        assert page.run("return violations.splice(0)") == [f"connect-src {other.address}/v1/models"]


def _shows(page: Page, selector: str, text: str) -> bool:
    return text in page.texts(selector)


PLACES = ("#chat/%E0%A4%A", "#constructor", "#control/__proto__", "#control/<img src=x>", "#chat/../../admin")


@pytest.mark.parametrize("place", PLACES)
def test_a_link_to_nowhere_shows_a_page(page: Page, place: str) -> None:
    with standing_in() as server:
        server.events["/admin/events"] = []
        page.open(server.address, place)
        page.one(".server, .composer")
        assert page.offences() == []
