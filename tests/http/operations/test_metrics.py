"""Metrics of real servers with tiny models, read by Prometheus's own parser."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import yaml
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from greenroom.http.operations.metrics import COUNTERS, SHARED_SECONDS
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    eventually,
)
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Server, connected, fetch, serving

NOTES = Path(__file__).resolve().parents[3] / "notes"
CHAT = "/v1/chat/completions"
ISSUED = {
    *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total"),
    *("prefix_cache_hits_total", "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total"),
    *("request_success_total", "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
    *("e2e_request_latency_seconds_bucket", "request_queue_time_seconds_bucket"),
    *("request_prefill_time_seconds_bucket", "request_decode_time_seconds_bucket"),
}
"""Names that dashboards made for vLLM ask for."""


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs in real time and can jump."""
    return MockClock(rate=1.0)


@pytest.fixture
def still_clock() -> MockClock:
    """Return a clock that stands still until it is told to jump."""
    return MockClock()


def chatting(model: str, text: str = "Hello", tokens: int = 8, **more: Any) -> dict[str, Any]:
    """Return the body of a chat."""
    asked = {"model": model, "messages": [{"role": "user", "content": text}]}
    return {**asked, "max_tokens": tokens, "temperature": 0, **more}


@attrs.frozen
class Scrape:
    """The samples of one scrape.

    Args:
        text: Text as it was sent.
        samples: Values by the sample's name and its labels.
    """

    text: str
    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, model: str, **labels: str) -> float:
        """Return the value of a sample; 0 if there is none."""
        return self.samples.get((name, frozenset({"model_name": model, **labels}.items())), 0.0)

    @property
    def names(self) -> set[str]:
        """The names of the samples."""
        return {name for name, _ in self.samples}

    @property
    def models(self) -> set[str]:
        """The models that any sample names."""
        return {value for _, labels in self.samples for label, value in labels if label == "model_name"}


async def scrape(server: Server) -> Scrape:
    """Scrape a server that has shared nothing in the last second."""
    response = await fetch(server, "GET", "/metrics")
    assert response.status == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = response.body.decode()
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Scrape(text, samples)


async def test_requests_of_three_kinds_are_counted_in_their_own_units(
    tiny_model: TinyModel, tiny_encoder: TinyEncoder, clock: MockClock
) -> None:
    models = (str(tiny_model("qwen3")), str(tiny_encoder("bert")), str(tiny_encoder("bert-rerank")))
    async with serving(Settings(models=models, shutdown_timeout=60.0)) as served:
        server = served.server
        first = await fetch(server, "POST", CHAT, chatting("qwen3", "Hello " * 50))
        twice = chatting("qwen3", "Hello " * 50, stream=True, n=2)
        second = await fetch(server, "POST", CHAT, twice)
        assert (first.status, second.status) == (200, 200)
        embedded = {"model": "bert", "input": ["one two", "three", "four"]}
        vectors = await fetch(server, "POST", "/v1/embeddings", embedded)
        ranked = {"model": "bert-rerank", "query": "who", "documents": ["a garden", "a man"]}
        assert (await fetch(server, "POST", "/rerank", ranked)).status == 200
        seen: list[Scrape] = []

        async def counted() -> bool:
            clock.jump(SHARED_SECONDS)
            seen.append(await scrape(server))
            # Each model's thread publishes its own figures, behind its answers.
            embedded_tokens = seen[-1].value("vllm:prompt_tokens_total", "bert")
            return seen[-1].value("vllm:generation_tokens_total", "qwen3") == 24 and embedded_tokens > 0

        await eventually(counted)
    last, usage = seen[-1], first.json()["usage"]
    assert last.models == {"qwen3", "bert", "bert-rerank"}
    assert last.value("vllm:prompt_tokens_total", "qwen3") == 2 * usage["prompt_tokens"]
    queried = last.value("vllm:prefix_cache_queries_total", "qwen3")
    assert queried == 2 * usage["prompt_tokens"] > last.value("vllm:prefix_cache_hits_total", "qwen3") > 0
    assert last.value("vllm:request_success_total", "qwen3", finished_reason="length") == 2
    for name, count in {
        "time_to_first_token_seconds": 2,
        "e2e_request_latency_seconds": 2,
        "request_queue_time_seconds": 2,
        "inter_token_latency_seconds": 3 * 7,  # between the 8 tokens of each of 3 answers
    }.items():
        assert last.value(f"vllm:{name}_count", "qwen3") == count, name
        assert last.value(f"vllm:{name}_bucket", "qwen3", le="+Inf") == count, name
        assert last.value(f"vllm:{name}_sum", "qwen3") > 0, name
    parts = ("request_queue_time", "request_prefill_time", "request_decode_time")
    whole = sum(last.value(f"vllm:{part}_seconds_sum", "qwen3") for part in parts)
    assert last.value("vllm:e2e_request_latency_seconds_sum", "qwen3") == pytest.approx(whole)
    assert last.value("greenroom:prefill_seconds_total", "qwen3") > 0
    assert last.value("greenroom:decode_seconds_total", "qwen3") > 0
    assert last.value("greenroom:decode_seconds_total", "bert") == 0
    assert last.value("greenroom:texts_total", "bert") == 3
    assert last.value("vllm:prompt_tokens_total", "bert") == vectors.json()["usage"]["prompt_tokens"]
    assert last.value("vllm:time_to_first_token_seconds_count", "bert") == 0
    assert last.value("greenroom:documents_total", "bert-rerank") == 2
    assert last.value("greenroom:memory_bytes", "qwen3", kind="weights") > 0
    assert last.value("greenroom:model_loads_total", "qwen3") == 1
    assert last.value("greenroom:model_state", "qwen3", state="ready") == 1
    assert {f"vllm:{name}" for name in ISSUED} <= last.names


async def test_counters_outlive_evictions_failures_and_hang_ups(
    tiny_model: TinyModel, clock: MockClock
) -> None:
    models = (str(tiny_model("qwen3")), str(tiny_model("llama")))
    settings = Settings(models=models, max_loaded_models=1, shutdown_timeout=60.0)
    faults, scrapes = Faults(load={"llama": RuntimeError("planted")}), list[Scrape]()
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        server = served.server

        async def told() -> Scrape:
            clock.jump(SHARED_SECONDS)
            scrapes.append(await scrape(server))
            return scrapes[-1]

        statuses = [
            (await fetch(server, "POST", CHAT, chatting(model))).status for model in ("qwen3", "llama")
        ]
        faults.load.clear()
        evicted = await told()
        assert statuses[0] == 200 < statuses[1]
        assert evicted.value("greenroom:model_evictions_total", "qwen3") == 1
        assert evicted.value("greenroom:memory_bytes", "qwen3", kind="weights") == 0
        assert evicted.value("vllm:generation_tokens_total", "qwen3") == 8
        assert evicted.value("greenroom:decode_seconds_total", "qwen3") > 0
        assert evicted.value("vllm:inter_token_latency_seconds_count", "qwen3") == 7
        assert evicted.value("greenroom:model_failures_total", "llama") == 1
        assert evicted.value("greenroom:request_failures_total", "llama", code="load_failed") == 1
        assert (await fetch(server, "POST", CHAT, chatting("llama"))).status == 200
        async with connected(server, math.inf) as client:
            body = chatting("qwen3", tokens=20_000, stream=True)
            await client.request("POST", CHAT, json.dumps(body).encode())
            await client.read_until(b'"delta":{"content":')

            async def runs() -> bool:
                return (await told()).value("vllm:num_requests_running", "qwen3") == 1

            await eventually(runs)

        async def left() -> bool:
            last = await told()
            aborted = last.value("vllm:request_success_total", "qwen3", finished_reason="abort")
            # The tokens follow with the next figures of the model's thread.
            return aborted == 1 and last.value("vllm:generation_tokens_total", "qwen3") > 8

        await eventually(left)
    last = scrapes[-1]
    assert last.value("greenroom:model_loads_total", "qwen3") == 2
    assert last.value("greenroom:model_restarts_total", "llama") == 1
    assert last.value("vllm:e2e_request_latency_seconds_count", "qwen3") == 1
    counters = [key for key in last.samples if re.search("_(total|bucket|count|sum)$", key[0])]
    assert len(counters) > 100
    for before, after in pairwise(scrapes):
        for key in counters:
            assert after.samples.get(key, 0) >= before.samples.get(key, 0), key


async def test_responses_are_counted_by_labels_that_no_client_chooses() -> None:
    async with serving(Settings(shutdown_timeout=20.0)) as served:
        for method, path, status in (
            ("GET", "/livez", 200),
            ("GET", "/livez?secret=1", 200),
            ("GET", "/v1/models/no/such", 404),
            ("GET", "/v1/models/nor/this", 404),
            ("POST", CHAT, 400),
            ("GET", "/secret", 404),
            ("DELETE", CHAT, 405),
            ("SECRET", "/livez", 405),
        ):
            body = b"{" if method == "POST" else None
            assert (await fetch(served.server, method, path, body)).status == status, path
        told = await scrape(served.server)
    found = {labels: value for (name, labels), value in told.samples.items() if "http_requests" in name}
    assert found == {
        frozenset({("route", route), ("method", method), ("status", status)}): count
        for route, method, status, count in (
            ("/livez", "GET", "2xx", 2),
            ("/v1/models/<path:model>", "GET", "4xx", 2),
            (CHAT, "POST", "4xx", 1),
            ("other", "GET", "4xx", 1),
            ("other", "DELETE", "4xx", 1),
            ("other", "other", "4xx", 1),
        )
    }
    assert "secret" not in told.text.lower()


async def test_the_alarms_and_the_dashboard_ask_for_metrics_and_labels_that_exist() -> None:
    async with serving(Settings(db=":memory:", shutdown_timeout=20.0)) as served:
        assert (await fetch(served.server, "POST", CHAT, chatting("default"))).status == 200
        told = await scrape(served.server)
    labels = {"le", *(label for _, pairs in told.samples for label, _ in pairs)}
    # A counter with a label has no samples before its first event.
    counters = {f"{row.name}_total": row.label for row in COUNTERS}
    labels |= {label for label in counters.values() if label is not None}
    dashboard = json.loads((NOTES / "grafana.json").read_text(encoding="utf-8"))
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(targets) > 20
    asked: set[str] = set()
    for target in targets:
        bare = re.sub(r"\$\w+", "", re.sub(r"{[^}]*}", "", target["expr"]))
        asked |= set(re.findall(r"\b(?:vllm:|greenroom:|process_)\w+", bare))
        named = re.findall(r"{{(\w+)}}", target["legendFormat"])
        named += re.findall(r"(\w+)=~", target["expr"])
        for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
            named += re.findall(r"\w+", group)
        assert set(named) <= labels, target["expr"]
    assert asked <= told.names | counters.keys(), "the dashboard asks for more than there is"
    rules = yaml.safe_load((NOTES / "alarms.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    alarms = {name for rule in rules for name in re.findall(r"\b(?:vllm:|greenroom:)\w+", rule["expr"])}
    assert alarms <= told.names | counters.keys(), "an alarm asks for more than there is"
    for rule in rules:
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
    # A metric worth an alarm can be seen.
    assert alarms <= asked | {"greenroom:build_info"}
    shown = {re.sub("_(total|bucket)$", "", name) for name in asked if name.startswith("vllm:")}
    served_names = {re.sub("_(total|bucket|count|sum)$", "", name) for name in told.names | counters.keys()}
    assert shown == {name for name in served_names if name.startswith("vllm:")}
    variable = dashboard["templating"]["list"][1]["query"]["query"]
    listed = re.fullmatch(r"label_values\((\S+), model_name\)", variable)
    assert listed is not None
    assert listed[1] in told.names


async def test_scrapers_share_a_text_for_a_second(tiny_model: TinyModel, still_clock: MockClock) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    async with serving(settings) as served:
        texts: set[str] = set()

        async def read() -> None:
            texts.add((await scrape(served.server)).text)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read)
        assert (await fetch(served.server, "POST", CHAT, chatting("qwen3"))).status == 200
        await read()
        assert len(texts) == 1
        still_clock.jump(SHARED_SECONDS)
        assert (await scrape(served.server)).value("greenroom:model_loads_total", "qwen3") == 1


async def test_no_text_of_a_client_becomes_a_label_and_a_hostile_folder_is_escaped(
    tiny_model: TinyModel, tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hostile = tmp_path / 'evil"} 1\n# HELP x\\'
    shutil.copytree(tiny_model("qwen3"), hostile)
    settings = Settings(models=(str(hostile),), allow_downloads=True, shutdown_timeout=60.0)
    async with serving(settings) as served:
        assert (await fetch(served.server, "POST", CHAT, chatting("default"))).status == 200
        for name in ("nobody/nothing", 'x"} 1\nvllm:evil 1', "../../etc/passwd"):
            assert (await fetch(served.server, "POST", CHAT, chatting(name))).status >= 400
        pulled = await fetch(served.server, "POST", "/admin/pull", {"model": "nobody/nothing"})
        assert b'"failed"' in pulled.body or pulled.status >= 400
        got = await scrape(served.server)
        assert got.models == {hostile.name}
        assert "nobody" not in got.text
        assert got.samples["greenroom:downloads_total", frozenset({("state", "failed")})] == 2
        assert got.samples["greenroom:downloads_running", frozenset()] == 0
        for header in (
            {"x_forwarded_for": "192.0.2.7"},
            {"host": "studio.example"},
            {"origin": "http://a.b"},
        ):
            assert (await fetch(served.server, "GET", "/metrics", **header)).status == 403
