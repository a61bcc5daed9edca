"""The control room on real servers: models, downloads, restarts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in
from greenroom.tests.support.models.tiny_adapters import make_adapter
from greenroom.tests.support.servers.hub_server import open_hub
from greenroom.tests.support.servers.server_processes import ServerProcess, serving


def asked(server: ServerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"{server.address}{path}", timeout=60) as response:
        return json.load(response)


def state_of(page: Page, model: str) -> str:
    """Return the state on a model's card."""
    script = "return document.querySelector(`[aria-label='Model ${arguments[0]}'] .state`)?.textContent || ''"
    return str(page.run(script, model))


def focused(page: Page) -> str:
    """Return the name of the button that has the focus."""
    return str(page.run("return document.activeElement.ariaLabel"))


def test_a_model_is_loaded_pinned_evicted_and_probed(page: Page, tiny_model: Callable[..., Path]) -> None:
    models = (str(tiny_model("qwen3")), str(tiny_model("llama")))
    with serving("greenroom-demo", *models, "--max-loaded-models", "1", "--db", ":memory:") as server:
        page.open(server.address, "#control/models")
        cards = page.wait(lambda: page.texts(".cards h3"))
        page.press("Load qwen3")
        page.wait(lambda: state_of(page, "qwen3") == "ready")
        page.wait(lambda: page.texts("[role=status]")[-1].startswith("Ready after"))
        assert focused(page) == "Unload qwen3"  # it was pressed, as “Load”
        page.press("Load llama")
        page.wait(lambda: (state_of(page, "llama"), state_of(page, "qwen3")) == ("ready", "idle"))
        page.press("Pin llama")
        page.wait(lambda: page.all("[aria-label='Unpin llama']"))
        page.press("Unpin llama")
        page.wait(lambda: page.all("[aria-label='Pin llama']"))
        page.press("Unload llama")
        page.wait(lambda: state_of(page, "llama") == "idle")
        page.press("Probe greenroom-demo")
        page.wait(lambda: "Probed: what it can do is kept" in page.texts("[role=status]"))
        assert focused(page) == "Probe greenroom-demo"
        assert page.texts(".cards h3") == cards
        page.wait(lambda: asked(server, "/v1/models")["data"][0]["probed"])
        page.press("Load greenroom-demo")
        page.wait(lambda: state_of(page, "greenroom-demo") == "ready")
        facts = page.texts("[aria-label='Model qwen3'] p .faint")[0]
        assert "not probed" in facts
        assert "default" not in page.texts("[aria-label='Model greenroom-demo'] p .faint")[0]
        account = page.wait(lambda: page.texts("[aria-label='Memory account'] h2"))[0]
        assert re.search(r"^Memory of all models: [\d.]+ .?B of [\d.]+ .B$", account)
        page.wait(lambda: "weights 1.6 MB" in page.texts("[aria-label='Model greenroom-demo'] .legend")[0])
        assert page.texts("[role=alert]") == []
        page.picture("models")
        page.go("#control/log")
        page.wait(lambda: any("evict" in line and "for llama" in line for line in page.texts(".lines li")))
        page.wait(lambda: any("state changed" in line for line in page.texts(".lines.mono li")))
        page.picture("news")


def test_a_request_is_seen_at_work_and_cancelled(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.choose("qwen3")
    body = {"model": "qwen3", "input": "A long story", "stream": True, "store": False, "temperature": 0}
    page.run(
        "fetch('/v1/responses', {method: 'POST', headers: {'content-type': 'application/json'}, "
        "body: arguments[0]}).then((response) => response.text()).then((text) => { window.ended = text; })",
        json.dumps(body),
    )
    page.go("#control/models")
    page.wait(lambda: "Batch: 1 row" in page.texts("[aria-label='Model qwen3'] h4"))
    rate = "[aria-label='Model qwen3'] .figures div:nth-child(4) dd"
    page.wait(lambda: float(page.texts(rate)[0]) > 1)
    card = "[aria-label='Model qwen3']"
    assert page.texts(f"{card} .figures div:nth-child(1)")[0] == "Leases1"
    steps = page.wait(lambda: [text for text in page.texts(f"{card} h4") if text.startswith("Steps")])
    assert re.fullmatch(r"Steps of the last \d+ s: busy \d+ %", steps[0])
    bar = f"return document.querySelector(\"{card} [aria-label^='Steps:']\").getAttribute('aria-label')"

    def shares() -> list[int]:
        found = re.fullmatch(r"Steps: prefill (\d+) %, decode (\d+) %", page.run(bar))
        assert found is not None
        return [int(found[1]), int(found[2])]

    page.wait(lambda: shares()[1] > 50)  # the prompt is the first to be computed
    assert 99 <= sum(shares()) <= 101
    page.picture("batch")
    page.go("#control/requests")
    page.wait(lambda: any("decode:" in cell for cell in page.texts("td")))
    page.picture("requests")
    page.one("td button").click()
    page.wait(lambda: asked(server, "/admin/requests")["requests"] == [])
    page.wait(lambda: "response.failed" in str(page.run("return window.ended")))


def test_settings_usage_and_the_inspector_are_shown(page: Page, server: ServerProcess) -> None:
    page.open(server.address)
    page.ask("What is 2 plus 3?")
    page.answer()
    page.go("#control/settings")
    page.fill("Name", "inspect")
    page.wait(lambda: page.texts("tbody td") == ["inspect", "10", "flag"])
    page.go("#control/usage")
    page.wait(lambda: "POST /v1/responses" in page.texts("td"))
    page.picture("usage")
    page.go("#control/inspector")
    [answer] = page.wait(lambda: [row for row in page.all("tbody tr") if "finished" in row.text])
    answer.find_element("css selector", "button").click()
    page.wait(lambda: any("2 + 3 = 5." in text for text in page.texts("pre")))


def test_a_model_of_the_hub_is_found_fetched_and_deleted(
    page: Page, tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in tiny_model("llama").iterdir() if path.is_file()}
    with open_hub({"org/tiny-llama": files}) as hub:
        hub.pace = 0.05
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        with serving("greenroom-demo", "--db", ":memory:") as server:
            page.open(server.address, "#control/downloads")
            page.fill("Words", "llama")
            page.press("Search")
            page.wait(lambda: "org/tiny-llama" in page.texts("td"))
            page.press("Pull org/tiny-llama")
            page.wait(lambda: page.all("td progress"))
            page.press("Cancel org/tiny-llama")
            page.wait(lambda: "cancelled" in page.texts("td"))
            assert page.texts("[role=alert]") == []
            page.picture("downloads")
            hub.pace = 0.0
            page.press("Resume org/tiny-llama")
            page.wait(lambda: "completed" in page.texts("td"))
            page.go("#control/models")
            page.press("Delete org/tiny-llama")
            page.press("Really delete? org/tiny-llama")
            page.wait(lambda: "org/tiny-llama" not in json.dumps(asked(server, "/v1/models")))


def test_adapters_are_shown_under_their_base(
    page: Page, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    base = shutil.copytree(tiny_model("qwen3"), tmp_path / "shelf" / "base")
    sql = make_adapter(base, tmp_path / "shelf" / "sql", 2)
    shutil.copytree(sql, tmp_path / "shelf" / "broken")
    (tmp_path / "shelf" / "broken" / "adapters.safetensors").write_bytes(b"")
    with serving("--model-dir", str(tmp_path / "shelf"), "--db", ":memory:") as server:
        page.open(server.address, "#control/models")
        listed = "[aria-label='Model base'] li"
        broken, fine = page.wait(lambda: page.texts(listed))
        assert (broken.startswith("broken: "), fine) == (True, "sql")
        assert page.texts(".cards h3") == ["base"]
        page.run(
            "fetch('/admin/adapters', {method: 'POST', headers: {'content-type': 'application/json'}, "
            "body: JSON.stringify({name: 'sql'})})"
        )
        page.wait(lambda: page.texts(listed)[-1] == "sql in memory")


def test_it_connects_again_after_the_server_was_killed(page: Page) -> None:
    with serving("--supervised", "greenroom-demo", "--db", ":memory:", only_json=False) as server:
        page.open(server.address, "#control/log")
        before = page.wait(lambda: asked(server, "/health"))["pid"]
        page.wait(lambda: str(before) in page.one(".server").text)
        os.kill(before, signal.SIGKILL)
        page.wait(lambda: page.one("#status").text == "Reconnecting …")
        page.picture("reconnecting")
        page.wait(lambda: "restarted once since this page opened" in page.one(".server").text)
        page.wait(lambda: page.texts("#status") == [""])
        after = asked(server, "/health")["pid"]
        assert after != before
        assert any(f"{after} after {before}" in line for line in page.texts(".lines li"))
        page.picture("reconnected")


def test_pages_that_were_left_hold_no_connection(page: Page, server: ServerProcess) -> None:
    for _ in range(7):  # a browser has six connections to a server
        page.open(server.address, "#control/log")
        page.wait(lambda: page.all(".lines.mono"))
    page.driver.back()
    page.driver.back()
    # What the server thinks of itself is asked once: on a busy machine that is not always "ok".
    page.wait(lambda: page.all(".lines.mono li") and page.texts(".server .state") in (["ok"], ["degraded"]))


def test_the_first_key_goes_on_in_the_page_that_made_it(page: Page, tmp_path: Path) -> None:
    with serving("greenroom-demo", "--db", str(tmp_path / "greenroom.db")) as server:
        page.open(server.address, "#control/keys")
        page.wait(lambda: "No keys: no request needs one." in page.texts(".faint"))
        page.fill("Name", "boss")
        page.press("Make a key")
        secret = page.wait(lambda: page.texts(".secret"))[0]
        page.press("Copy", "[aria-label='New key']")
        page.wait(lambda: "Copied" in page.texts("[aria-label='New key'] button"))
        page.wait(lambda: "boss" in page.texts("td"))
        assert "operator" in page.texts("td")
        assert "No keys: no request needs one." not in page.texts(".faint")
        page.fill("Name", "guest")
        page.press("Make a key")
        page.wait(lambda: page.texts(".secret") not in ([], [secret]))
        page.wait(lambda: "guest" in page.texts("td"))
        assert not page.run("return document.querySelector('#key-dialog').open")
        assert page.run("return sessionStorage.getItem('greenroom-key')") == secret
        page.driver.refresh()
        page.wait(lambda: "guest" in page.texts("td"))
        missing = page.run(
            "return performance.getEntriesByType('resource').filter((each) => each.responseStatus === 404)"
        )
        assert missing == []
        page.go("#control/log")
        page.wait(lambda: page.texts(".lines.mono li"))
        assert not any(re.search(r"request finished.*=0( |$)", line) for line in page.texts(".lines li"))


def test_a_refusal_stays_beside_its_request(page: Page) -> None:
    figures = {"model": "m", "state": "running", "seconds": 1, "rows": [], "choices": 1, "priority": 0}
    requests = [{"id": name, **figures} for name in ("first", "second")]
    with standing_in() as server:
        server.events["/admin/events"] = []
        server.documents["/admin/requests"] = {"requests": requests}
        page.open(server.address, "#control/requests")
        page.press("Cancel second")
        page.wait(lambda: "gone" in page.texts("tbody tr")[1])
        server.documents["/admin/requests"] = {"requests": requests[1:]}
        page.wait(lambda: len(page.texts("tbody tr")) == 1)
        assert "gone" in page.texts("tbody tr")[0]


def test_fetches_leave_the_connections_to_others(page: Page) -> None:
    facts = {"downloads": 1, "likes": 1, "gated": False, "local": False}
    with standing_in() as server:
        server.events = {"/admin/events": [], "/admin/pull": [("pull", {})]}
        server.documents["/admin/pulls"] = {"pulls": []}
        server.documents["/admin/search"] = {"models": [{"id": f"org/{n}", **facts} for n in range(7)]}
        page.open(server.address, "#control/downloads")
        page.fill("Words", "m")
        page.press("Search")
        for number in range(7):  # a browser has six connections to a server
            page.press(f"Pull org/{number}")
        page.wait(lambda: page.texts("td [role=status]") == ["Begun"] * 7)
