"""`greenroom rerank` with documents from the command line and from stdin, as a process."""

from __future__ import annotations

import json

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.servers.server_processes import run_greenroom
from greenroom.tests.support.servers.shared_servers import Shared
from greenroom.tests.support.texts.random_texts import random_texts

QUERY = "who walks"


@pytest.fixture
def command(tiny_encoder: TinyEncoder, shared: Shared) -> tuple[str, ...]:
    """The command for a server; alone it ranks in test_joining.py."""
    folder = str(tiny_encoder("bert-rerank"))
    return ("rerank", "-m", folder, "--url", shared(Settings(models=(folder,))).server.address)


def test_documents_are_printed_best_first(command: tuple[str, ...]) -> None:
    texts = random_texts(1_100, longest=3)  # more than the command scores at once
    printed = run_greenroom(*command, QUERY, "-", stdin="\n\n".join(texts))
    assert (printed.returncode, printed.stderr) == (0, "")
    entries = [json.loads(line) for line in printed.stdout.splitlines()]
    assert len(entries) == len(texts)
    assert all(texts[entry["index"] // 2] == entry["text"] for entry in entries)
    scores = [entry["relevance_score"] for entry in entries]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]

    best = entries[:3]
    words = run_greenroom(*command, "--top", "3", QUERY, *(entry["text"] for entry in entries[40::-1]))
    again = [json.loads(line) for line in words.stdout.splitlines()]
    assert [entry["text"] for entry in again] == [entry["text"] for entry in best]
    wanted = pytest.approx([entry["relevance_score"] for entry in best], abs=1e-6)
    assert [entry["relevance_score"] for entry in again] == wanted


def test_what_cannot_be_ranked_is_one_line(command: tuple[str, ...]) -> None:
    for arguments, named in (
        (("hello " * 20_000, "document"), "`query` is too long"),
        (("--instruction", "find walkers", QUERY, "document"), "a cross-encoder is not"),
        ((QUERY, "document", "-"), "- reads one document per line"),
    ):
        refused = run_greenroom(*command, *arguments)
        assert refused.returncode in (1, 2)
        assert refused.stdout == ""
        [line] = refused.stderr.splitlines()
        assert named in line
