"""Tests that the shipped table (`make batching-table`) matches the installed mlx-lm and our patches."""

from __future__ import annotations

import importlib
import json

import pytest

from greenroom.engine.loading.batching_table import TABLE, as_entry, digest_of
from greenroom.tests.support.architectures.architectures import names
from greenroom.tests.support.architectures.batching_table import prove_architecture
from greenroom.tests.support.engines.schedules import soak_only

ENTRIES = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]

FEW = ("llama", "mamba")
"""One plain and one patched architecture; the long run covers all."""


def test_it_has_every_architecture_with_its_code_as_it_is_installed() -> None:
    assert sorted(ENTRIES) == names()
    for name, entry in ENTRIES.items():
        module = importlib.import_module(f"mlx_lm.models.{name}").Model.__module__
        digest = digest_of(module.rpartition(".")[2])
        assert entry["digest"] == digest, f"{name} has changed: run make batching-table"


@pytest.mark.parametrize("name", [*FEW, *soak_only(*(name for name in ENTRIES if name not in FEW))])
def test_it_says_what_a_proof_says(name: str) -> None:
    digest, batching = prove_architecture(name)
    proved = as_entry(batching)
    known = {key: ENTRIES[name][key] for key in ("prefill", "decode")}
    assert (digest, {key: proved[key] for key in known}) == (ENTRIES[name]["digest"], known)
