"""Processes stopped for longer than the hang timeout, and prompts whose preparation never ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenroom.tests.support.models.tiny_models import TinyModel

pytestmark = pytest.mark.soak

HANG_TIMEOUT = 5.0
"""Hang timeout of workers in seconds, long enough for one step on a busy machine."""

COMMON = f"""
import os, sys, trio
from greenroom.actors.system import open_system
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.schemas.events.events import Failed, TextDelta
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, generate

import_text_libraries()  # may take longer than a thread may be silent here
settings = Settings(models=(sys.argv[1],), shutdown_timeout=60.0)

def opened():
    return open_system(settings, hang_timeout={HANG_TIMEOUT})

def tell(end):
    print(end.problem.code if isinstance(end, Failed) else end.usage.generated, flush=True)
"""

STOPPED = """
async def main():
    async with opened() as system:
        with generate(system.pool, "default", max_tokens=1000) as generation:
            async for event in generation:
                if isinstance(event, TextDelta) and not told:
                    told.append(print("generating", flush=True))
        tell(event)

told = []
trio.run(main)
"""

ENDLESS = """
async def main():
    async with opened() as system:
        for prompt in ("hello", "spin", "hello"):
            tell((await answer(system.pool, "default", prompt=prompt))[1])
    print("hung" if system.hung else "ended", flush=True)
    os._exit(0)

trio.run(main)
"""

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@contextmanager
def run(script: str, model: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", COMMON + script, str(model)]
    source = str(Path(__file__).parents[2] / ".src")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={"PYTHONPATH": source}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> list[str]:
    """Return the process's further output, without its log."""
    assert process.stdout is not None
    return [line.strip() for line in process.stdout if "[" not in line]


def test_a_process_that_was_stopped_goes_on_where_it_was(tiny_model: TinyModel) -> None:
    with run(STOPPED, tiny_model("qwen3")) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "generating\n":
            assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * HANG_TIMEOUT)  # the process must be stopped for longer than the timeout
        process.send_signal(signal.SIGCONT)
        assert lines(process) == ["1000"]


def test_a_template_that_never_ends_costs_the_prompt_that_it_is_given(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model("qwen3"), tmp_path / "endless")
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["chat_template"] += f"{{% if 'spin' in messages | string %}}{LOOPS}{{% endif %}}"
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    with run(ENDLESS, model) as process:
        # The limit on a template's work ends it, so that no thread hangs.
        assert lines(process) == ["8", "chat_template_error", "8", "ended"]
