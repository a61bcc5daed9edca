"""Members of listings that Open WebUI, Cline and Continue read, by their sources."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

OPEN_WEBUI_OWN = {"info", "tags", "pipe", "pipeline", "preset", "actions", "filters", "urlIdx", "urls"}
"""Members that Open WebUI adds to each entry, and takes for its own."""


@pytest.fixture
async def served(tiny_model: Callable[..., Path], tmp_path: Path) -> AsyncIterator[Served]:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "qwen3")
    (folder / "generation_config.json").write_text(json.dumps({"top_p": 0.8, "repetition_penalty": 1.5}))
    tables = (("qwen3", ModelSettings(max_context=96, temperature=0.25)),)
    async with serving(Settings(models=(str(folder),), model_settings=tables)) as running:
        yield running


async def get(served: Served, path: str, body: Any = None) -> Any:
    answer = await fetch(served.server, "GET" if body is None else "POST", path, body)
    assert answer.status == 200
    return answer.json()


async def test_open_webui_lists_models_of_both_protocols_and_shows_which_are_loaded(served: Served) -> None:
    listed = await get(served, "/v1/models")
    [model] = listed["data"]
    assert (listed["object"], model["id"], model["name"]) == ("list", "qwen3", "qwen3")
    assert not OPEN_WEBUI_OWN & model.keys()
    assert re.match(r"\d+\.\d+\.\d+$", (await get(served, "/api/version"))["version"])
    [tag] = (await get(served, "/api/tags"))["models"]
    assert (tag["model"], tag["name"]) == ("qwen3", "qwen3")
    assert {"parameter_size", "quantization_level", "family"} <= tag["details"].keys()
    assert {"size", "digest", "modified_at"} <= tag.keys()
    await get(served, "/api/generate", {"model": "qwen3", "keep_alive": "5m"})
    [running] = (await get(served, "/api/ps"))["models"]
    assert running["model"] == "qwen3"
    expires = datetime.fromisoformat(running["expires_at"]).timestamp() - datetime.now().timestamp()
    assert 200 < expires <= 300


async def test_cline_reads_ids_and_names(served: Served) -> None:
    assert [model["id"] for model in (await get(served, "/v1/models"))["data"]] == ["qwen3"]
    assert [model["name"] for model in (await get(served, "/api/tags"))["models"]] == ["qwen3"]


async def test_continue_reads_names_the_context_and_whether_gaps_can_be_filled(served: Served) -> None:
    assert [model["id"] for model in (await get(served, "/v1/models"))["data"]] == ["qwen3"]
    assert [model["name"] for model in (await get(served, "/api/tags"))["models"]] == ["qwen3"]
    shown = await get(served, "/api/show", {"name": "qwen3"})
    lines = [re.match(r"(\S+)\s+((?:\".*\")|\S+)$", line) for line in shown["parameters"].splitlines()]
    assert {line[1]: line[2] for line in lines if line} == {
        "num_ctx": "96", "temperature": "0.25", "top_p": "0.8", "repeat_penalty": "1.5",
    }  # fmt: skip
    assert (".Suffix" in shown["template"]) is ("insert" in shown["capabilities"])


async def test_the_context_is_the_one_that_holds(served: Served) -> None:
    model = await get(served, "/v1/models/qwen3")
    shown = await get(served, "/api/show", {"model": "qwen3"})
    claude = await fetch(served.server, "GET", "/v1/models/qwen3", anthropic_version="2023-06-01")
    assert (model["context_length"], model["capabilities"]["context_length"]) == (96, 96)
    assert shown["model_info"]["qwen3.context_length"] == 96
    assert claude.json()["max_input_tokens"] == 96
