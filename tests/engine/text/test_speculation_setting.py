"""Tests of the speculation settings, up to the draft counts in an answer's usage."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_groups import Speculation
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import fetch, serving


async def test_lookup_drafts_what_is_repeated_and_off_does_not(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    body = {"model": "qwen3", "prompt": "import os", "max_tokens": 200, "temperature": 0}
    repetitive = {**body, "logit_bias": {"600": 100}}
    accepted, choices = {}, {}
    modes: tuple[Speculation, ...] = ("off", "lookup")
    for mode in modes:
        async with serving(attrs.evolve(settings, speculation=mode)) as served:
            answer = (await fetch(served.server, "POST", "/v1/completions", repetitive)).json()
        accepted[mode] = answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
        choices[mode] = answer["choices"]
    assert accepted["off"] == 0
    assert accepted["lookup"] >= 2
    assert choices["off"] == choices["lookup"]
