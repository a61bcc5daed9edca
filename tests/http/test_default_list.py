"""The list `default`, as clients of each protocol find it: the first model that loads answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import ModelSettings, Profile, Settings
from greenroom.tests.support.actors.actor_systems import state
from greenroom.tests.support.models.model_folders import make_model
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

MEGABYTE = 1 << 20
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


async def post(served: Served, path: str, model: str, **body: Any) -> Any:
    answer = await fetch(served.server, "POST", path, {"model": model, **body})
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.fixture
def too_large(tiny_model: Callable[..., Path]) -> Settings:
    """Settings with a list whose first model never fits, under three names."""
    large = tiny_model("qwen3", num_hidden_layers=2, intermediate_size=12_288)
    return Settings(
        models=(str(large), str(tiny_model("llama"))),
        default=(large.name, "llama"),
        model_settings=(("default", ModelSettings(alias=("gpt-9",))),),
        profiles=(("brief", Profile(model="default", max_tokens=1)),),
        memory_bytes=16 * MEGABYTE,
        shutdown_timeout=60.0,
    )


async def test_a_model_without_memory_leaves_the_answer_to_the_next_of_the_list(too_large: Settings) -> None:
    large = too_large.default[0]
    async with serving(too_large) as served:
        named = await fetch(served.server, "POST", "/v1/chat/completions", {"model": large, **CHAT})
        assert (named.status, named.json()["error"]["code"]) == (507, "insufficient_memory")
        loaded = await post(served, "/api/generate", "default")
        assert loaded["done_reason"] == "load"
        assert await state(served.system.pool, "llama") is ModelState.READY
        with capture_logs() as lines:
            for name in ("default", "default:latest", "gpt-9"):
                assert (await post(served, "/v1/chat/completions", name, **CHAT))["model"] == "llama"
        assert not [line for line in lines if line["event"] == "request failed"]
        brief = await post(served, "/v1/chat/completions", "brief", messages=CHAT["messages"])
        assert (brief["model"], brief["usage"]["completion_tokens"]) == ("brief", 1)
        assert (await post(served, "/admin/models/load", "gpt-9"))["id"] == "llama"


async def test_a_list_of_which_nothing_fits_is_refused_with_the_sums(too_large: Settings) -> None:
    none = attrs.evolve(too_large, memory_bytes=MEGABYTE)
    async with serving(none) as served:
        for path, body in (("/v1/chat/completions", CHAT), ("/api/generate", {}), ("/admin/models/load", {})):
            refused = await fetch(served.server, "POST", path, {"model": "default", **body})
            assert refused.status == 507, refused.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
        ("/api/generate", {}),
        ("/api/chat", {"messages": CHAT["messages"], "stream": False, "options": {"num_predict": 1}}),
        ("/admin/models/load", {}),
    ],
)
async def test_a_broken_first_model_keeps_no_route_from_the_next(
    tiny_model: Callable[..., Path], tmp_path: Path, path: str, body: Mapping[str, Any]
) -> None:
    broken = make_model(tmp_path / "broken", architectures=["LlamaForCausalLM"])
    models = (str(broken), str(tiny_model("llama")))
    settings = Settings(models=models, default=("broken", "llama"), shutdown_timeout=60.0)
    async with serving(settings) as served:
        assert await post(served, path, "default", **body)
