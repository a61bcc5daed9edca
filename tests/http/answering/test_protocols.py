"""Error responses in the format of the requested path's protocol."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import pytest
from quart import Response, request
from quart_trio import QuartTrio

from greenroom.http.answering.protocols import WireProtocol, answer_errors
from greenroom.http.openai.protocol import OPENAI_PROTOCOL
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import Problem, invalid
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.clients import anthropic_clients, ollama_clients, openai_clients
from greenroom.tests.support.servers.http_servers import Served, fetch, running, serving


def members_of_another(problem: Problem, request_id: str | None) -> Mapping[str, Any]:
    return {"type": "error", "error": {"message": problem.detail}, "request_id": request_id}


ANOTHER = WireProtocol(("/v1/messages", "/other/"), lambda services: (), members_of_another, mark="x-another")


def make_app() -> QuartTrio:
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    answer_errors(app, (OPENAI_PROTOCOL, ANOTHER))

    @app.before_request
    async def name_request() -> None:
        request.scope["state"]["request_id"] = "req_1"

    @app.get("/v1/<path:_path>")
    async def refuse(_path: str) -> Response:
        raise invalid("`n` is wrong.", "n")

    return app


@pytest.mark.parametrize(
    ("path", "status", "headers", "another"),
    [
        ("/v1/chat", 400, {}, False),
        ("/v1/messages", 400, {}, True),
        ("/v1/messages/count_tokens", 400, {}, True),
        ("/other/path", 404, {}, True),
        ("/nowhere", 404, {}, False),
        ("/v1/models/nobody", 400, {"X_Another": "1"}, True),
        ("/nowhere", 404, {"x_another": "1"}, True),
    ],
)
async def test_the_client_or_else_the_path_decides_the_shape_of_errors(
    path: str, status: int, headers: dict[str, str], another: bool
) -> None:
    async with running(make_app(), Settings()) as server:
        answer = await fetch(server, "GET", path, **headers)
    document = answer.json()
    assert (answer.status, document["status"]) == (status, status)
    assert document["instance"] == "urn:greenroom:request:req_1"
    if another:
        assert (document["type"], document["error"]) == ("error", {"message": document["detail"]})
        assert document["request_id"] == "req_1"
    else:
        assert document["type"].startswith("urn:greenroom:problem:")
        assert set(document["error"]) == {"message", "type", "param", "code"}


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


KINDS = ("text", "embeddings", "rerank")


@pytest.fixture
def settings(tiny_encoder: Callable[..., Path], tiny_model: Callable[..., Path]) -> Settings:
    models = (tiny_model("qwen3"), tiny_encoder("bert"), tiny_encoder("bert-rerank"))
    return Settings(models=(*map(str, models), "org/to-come"), shutdown_timeout=60.0)


async def test_openais_list_carries_the_capabilities_as_a_further_field(settings: Settings) -> None:
    async with serving(settings) as served:
        models = await openai_clients.ask(served, lambda client: list(client.models.list()))
        one = await fetch(served.server, "GET", "/v1/models/bert")
    known: list[Any] = [model.to_dict()["capabilities"] for model in models]
    assert [each["type"] for each in known[:3]] == list(KINDS)
    assert known[3] is None, "what is not here is not known"
    assert known[1]["dimensions"] == 64
    assert known[1] == one.json()["capabilities"]


async def test_anthropics_list_has_all_of_its_keys(settings: Settings) -> None:
    async with serving(settings) as served:
        text, embeds, ranks, unknown = await anthropic_clients.ask(
            served, lambda client: list(client.models.list())
        )
    assert text.capabilities.structured_outputs.supported
    assert text.capabilities.thinking.supported
    assert text.capabilities.thinking.types.between_tools.supported
    assert not text.capabilities.image_input.supported
    assert text.max_input_tokens == text.max_tokens > 0
    for other in (embeds, ranks):
        assert not other.capabilities.structured_outputs.supported
        assert (other.max_input_tokens, other.max_tokens) == (None, None)
    assert unknown.capabilities is None
    expected = anthropic.types.ModelCapabilities.model_fields
    assert set(text.capabilities.model_dump()) == set(expected)


async def test_ollamas_lists_use_its_words(settings: Settings) -> None:
    async with serving(settings) as served:
        shown = await ollama_clients.ask(
            served, lambda client: [client.show(name) for name in ("qwen3", "bert", "bert-rerank")]
        )
        tags = (await fetch(served.server, "GET", "/api/tags")).json()["models"]
        idle = await ollama_clients.ask(served, lambda client: client.ps())
        await fetch(served.server, "POST", "/api/generate", {"model": "qwen3"})
        [loaded] = (await ollama_clients.ask(served, lambda client: client.ps())).models
    assert [set(each.capabilities) for each in shown] == [
        {"completion", "tools", "thinking"}, {"embedding"}, {"rerank"},
    ]  # fmt: skip
    assert [model["capabilities"] for model in tags[:3]] == [each.capabilities for each in shown]
    assert shown[1].modelinfo["bert.embedding_length"] == 64
    assert idle.models == []
    assert (loaded.model, loaded.context_length) == ("qwen3", shown[0].modelinfo["qwen3.context_length"])
    assert loaded.size == loaded.size_vram > 0
    assert loaded.expires_at.year == 9999
