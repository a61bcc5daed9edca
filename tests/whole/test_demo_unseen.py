"""Schemas and tools that the built-in model was not trained on, sent with helpers of the official clients."""

from __future__ import annotations

import re

import pytest
import trio

from greenroom.engine.catalog.folders import DEMO_FOLDER
from greenroom.notes.demo_model.evaluate import Case, Outcome, evaluate
from greenroom.notes.demo_model.unseen import UNSEEN
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import serving

Judged = list[tuple[Case, Outcome]]


async def put(cases: tuple[Case, ...]) -> Judged:
    """Evaluate the cases on a server of the built-in model."""
    async with serving(Settings()) as served:
        return await trio.to_thread.run_sync(evaluate, served.server.address, cases)


def failures(judged: Judged) -> list[tuple[Case, Outcome]]:
    return [(case, outcome) for case, outcome in judged if outcome.problem]


@pytest.mark.deep
async def test_answers_to_unseen_schemas_and_calls_of_unseen_tools_end_and_validate() -> None:
    judged = await put(UNSEEN[3::7])

    assert len({outcome.way for _, outcome in judged}) == 7
    # One in twenty may fail. Rounding differs between processors, so any of them may be the one.
    assert len(failures(judged)) <= 1, failures(judged)


@pytest.mark.soak
async def test_the_card_states_how_many_of_all_unseen_schemas_and_tools_are_answered_right() -> None:
    card = (DEMO_FOLDER / "README.md").read_text()
    row = re.search(
        r"^\| schema or tool written after the training \| (\d+) of (\d+) \|$", card, re.MULTILINE
    )
    assert row is not None

    judged = await put(UNSEEN)

    wrong = failures(judged)
    assert len(judged) == int(row[2]) == 100
    assert int(row[1]) >= 95
    # Rounding depends on the processor and on the answers in the batch.
    assert abs(len(judged) - len(wrong) - int(row[1])) <= 2, wrong
