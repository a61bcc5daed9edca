"""The log of model states: each transition is logged once, by the actor that owns the state."""

from __future__ import annotations

import attrs
import structlog

from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.models.lifecycle import TRANSITIONS, ModelState
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    state,
    until,
)

IDLE, DOWNLOADING, WAITING, LOADING, READY, UNLOADING, ERROR = ModelState


async def test_every_change_of_state_is_logged_once_and_follows_from_the_one_before(
    settings: Settings,
) -> None:
    faults = Faults(crash={"bad"}, load={"llama": ProblemError(load_failed("llama", "no."))})
    one = attrs.evolve(settings, max_loaded_models=1, max_batch=2)
    with structlog.testing.capture_logs() as logs:
        async with open_system(one, engines=FaultyEngines(one, faults)) as system:
            assert isinstance((await answer(system.pool, "llama"))[1], Failed)
            faults.load.clear()
            with generate(system.pool, "qwen3", "holder", max_tokens=20_000) as holder:
                await until(holder, TextDelta)
                with generate(system.pool, "llama", "gone") as gone:
                    await until(gone, Admitted)

                async def nobody_waits() -> bool:
                    return await state(system.pool, "llama") is IDLE

                await eventually(nobody_waits)
            assert isinstance((await answer(system.pool, "llama"))[1], Finished)
            assert isinstance((await answer(system.pool, "llama", "bad", max_tokens=20_000))[1], Failed)
            assert isinstance((await answer(system.pool, "llama"))[1], Finished)
    seen: dict[str, list[ModelState]] = {"qwen3": [IDLE], "llama": [IDLE]}
    for line in logs:
        if line["event"] == "state changed":
            states = seen[line["model"]]
            assert line["before"] == states[-1]
            assert line["state"] in TRANSITIONS[states[-1]]
            # The operator's log has the same reason as the client's error.
            assert ("detail" in line) is (line["state"] == ERROR)
            states.append(ModelState(line["state"]))
    assert seen == {
        "qwen3": [IDLE, LOADING, READY, UNLOADING, IDLE],
        # Its files are opened, and so judged, before it waits for room.
        "llama": [
            *(IDLE, LOADING, ERROR, LOADING, WAITING, IDLE),
            *(LOADING, WAITING, LOADING, READY, ERROR, LOADING, READY),
        ],
    }
