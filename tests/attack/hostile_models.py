"""Hostile models served beside the others and requested by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx2

from greenroom.tests.attack import faults
from greenroom.tests.attack.campaign import confirmed
from greenroom.tests.attack.faults import Fault, Limits
from greenroom.tests.attack.server.target import Target
from greenroom.tests.support.hostile.model_folders import HOSTILE, HostileFolder, make_hostile

_ANSWERED_WITHIN = 60.0
_CALM_WITHIN = 20.0
"""Seconds in which the calm client must get another chunk."""

_SAMPLING = 0.02


def make_hostile_models(plain: Path, folder: Path) -> dict[str, Path]:
    """Make those hostile models, from a valid one, with which a server starts; return their folders."""
    folder.mkdir()
    names = (name for name, hostile in HOSTILE.items() if hostile.starts)
    return {name: make_hostile(name, plain, folder / name.replace(" ", "-")) for name in names}


def faults_of_models(
    target: Target, models: dict[str, Path], limits: Limits, report: Callable[[str], None]
) -> Iterator[Fault]:
    """Yield the recurring faults while each model is requested."""
    for name, folder in models.items():
        for fault in confirmed(partial(_observe, target, folder.name, HOSTILE[name], limits)):
            report(f"found {fault.kind} ({fault.detail}) of the model: {name}")
            yield fault


def _observe(target: Target, model: str, hostile: HostileFolder, limits: Limits) -> list[Fault]:
    if target.ended is not None:
        target.start()
    before, began = target.resources().memory, time.monotonic()
    answers: list[httpx2.Response | None] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(target.port, model, hostile.prompt)))
    asking.start()
    peak = before
    while asking.is_alive():
        peak = max(peak, target.resources().memory)
        time.sleep(_SAMPLING)
    if target.ended is not None:
        return [Fault("ended", f"exit status {target.ended} at {model}")]
    goes_on = target.wait_for_calm(5, _CALM_WITHIN)
    found = [*faults.of_calm(target.calm_since(began), limits.gap, goes_on)]
    found += faults.of_memory(before, peak, limits.memory)
    found += _wrong_answer(model, hostile, answers[0])
    if not target.answers():
        found.append(Fault("not ready", f"/readyz is not 200 beside {model}"))
    target.log_faults()  # discard the expected errors about this model, and libraries' messages
    if any(fault.kind in ("unanswered", "calm stream silent", "memory") for fault in found):
        target.stop()
        target.start()
    return found


def _ask(port: int, model: str, prompt: str) -> httpx2.Response | None:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    try:
        return httpx2.post(url, json=body, timeout=_ANSWERED_WITHIN)
    except httpx2.HTTPError:
        return None


def _wrong_answer(model: str, hostile: HostileFolder, answer: httpx2.Response | None) -> Iterator[Fault]:
    if answer is None:
        yield Fault("unanswered", f"a request to {model}")
    elif answer.status_code != 503 or answer.json().get("error", {}).get("code") != hostile.code:
        yield Fault("status", f"{answer.status_code} {answer.content[:300]!r} to {model}")
