"""The state of a server, as its operator reads it."""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.stored_records import unusable_default_database
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import fetch, serving


async def test_the_status_counts_models_and_says_what_does_not_work(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = unusable_default_database(monkeypatch, tmp_path)
    settings = Settings(models=(str(tiny_model("qwen3")),), db=database, shutdown_timeout=60.0)
    async with serving(settings) as served:
        new = (await fetch(served.server, "GET", "/admin/status")).json()
        # The keys are read at the start, so that a broken database is noticed then.
        assert (new["status"], new["models"], new["model_bytes"]) == ("degraded", {}, 0)
        assert (new["version"], new["pid"]) == (version("greenroom"), os.getpid())
        assert new["started_at"] <= time.time()
        body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        assert (await fetch(served.server, "POST", "/v1/chat/completions", body)).status == 200
        assert (await fetch(served.server, "POST", "/v1/conversations", {})).status == 503
        used = (await fetch(served.server, "GET", "/admin/status")).json()
        assert (used["status"], used["models"]) == ("degraded", {"ready": 1})
        assert used["memory_limit"] > used["model_bytes"] > 0
        assert (used["audit"], used["inspector"]) == (True, False)
        assert used["uptime"] > new["uptime"]
        assert "it is no file" in used["problems"][0]
