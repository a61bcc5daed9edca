"""The bench of a model, with its own server and bare loops."""

from __future__ import annotations

import json

from greenroom.tests.bench.test_bench import run_bench
from greenroom.tests.support.models.tiny_models import TinyModel


def test_bench_measures_a_model_against_the_bare_loops(tiny_model: TinyModel) -> None:
    plan = ("--concurrency", "2", "--tokens", "6", "--prompt-words", "4", "--repeats", "2", "--json")
    done = run_bench(str(tiny_model("qwen3")), *plan)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["errors"] == []
    assert 0 < result["tokens"] <= 24
    figures = result["figures"]
    for ratio in ("of_batch_generator", "of_bare_loop", "own_over_bare"):
        assert len(figures[ratio]["runs"]) == 2
        assert 0 < figures[ratio]["low"] <= figures[ratio]["median"] < 20
    assert {"cpu_beyond_batch_generator", "cpu_beyond_bare_loop"} <= set(figures)


def test_bench_says_why_a_model_cannot_be_served() -> None:
    done = run_bench("./nowhere")
    assert done.returncode == 1
    assert "there is no folder './nowhere'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
