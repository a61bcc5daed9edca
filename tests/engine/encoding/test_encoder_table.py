"""The page of encoders matches the installed libraries; `make encoder-table` regenerates it."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.loading.libraries import import_encoder_libraries
from greenroom.tests.support.architectures.encoder_table import read_table
from greenroom.tests.support.architectures.encoder_trials import Case, cases, try_case
from greenroom.tests.support.engines.schedules import soak_only

ENTRIES = read_table()
FEW = (Case("mlx_vlm", "bert", "vectors"), Case("mlx_vlm", "qwen3", "scores"))
"""An encoder and a decoder; the long run tests all."""


def test_it_names_every_architecture_that_embeds_or_ranks() -> None:
    pytest.importorskip("mlx_embeddings")
    assert sorted(ENTRIES) == cases(), "run make encoder-table"


def test_nothing_in_it_is_broken() -> None:
    results = {result for result, _ in ENTRIES.values()}
    assert results <= {"equal", "refused", "library fails", "not made"}
    reasons = {detail for result, detail in ENTRIES.values() if result == "refused"}
    assert all(
        reason.endswith(("not served here.", "not known here (Qwen3-Reranker's way is)"))
        for reason in reasons
    ), reasons
    assert all(detail for result, detail in ENTRIES.values() if result != "equal")


@pytest.mark.parametrize("case", [*FEW, *soak_only(*(case for case in ENTRIES if case not in FEW))])
def test_it_says_what_a_trial_says(case: Case, tmp_path: Path) -> None:
    import_encoder_libraries()
    outcome = try_case(case, tmp_path)
    assert (outcome.result, outcome.detail) == ENTRIES[case]
