"""Effective settings, as their operator reads them."""

from __future__ import annotations

import attrs
import pytest

from greenroom.http.operations.admin_server import effective_settings
from greenroom.http.settings.check_value import FIELDS
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.servers.http_servers import fetch, serving


async def test_every_setting_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    settings = Settings(
        max_batch=3,
        shutdown_timeout=20.0,
        model_settings=(("org/name", ModelSettings(pinned=True)),),
        origins=(("max_batch", "flag"), ("model_settings", "file")),
    )
    async with serving(settings) as served:
        answer = await fetch(served.server, "GET", "/admin/settings")
    shown = {each["name"]: each for each in answer.json()["settings"]}
    assert shown.keys() == {*FIELDS, "HF_TOKEN"}
    assert (shown["max_batch"]["value"], shown["max_batch"]["source"]) == (3, "flag")
    assert shown["model_settings"]["value"] == [["org/name", {"pinned": True}]]
    assert (shown["port"]["source"], shown["memory_bytes"]["set"]) == ("default", False)
    assert shown["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "value": None,
        "source": "environment",
        "secret": True,
        "set": True,
    }
    assert b"very_secret" not in answer.body


def test_a_secret_setting_keeps_its_value() -> None:
    @attrs.frozen
    class Keyed(Settings):
        key: str | None = attrs.field(default=None, metadata={"meaning": "A key.", "secret": True})

    for value, is_set in (("swordfish", True), (None, False)):
        [shown] = [each for each in effective_settings(Keyed(key=value)) if each.name == "key"]
        assert (shown.value, shown.secret, shown.set) == (None, True, is_set)
