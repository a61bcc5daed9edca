"""`greenroom embed` with texts from the command line and from stdin, as a process."""

from __future__ import annotations

import json

import numpy as np
import pytest

from greenroom.http.terminal.streams import MAX_TEXT_BYTES
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.servers.server_processes import FULL_DISK, run_greenroom
from greenroom.tests.support.servers.shared_servers import Shared
from greenroom.tests.support.texts.random_texts import random_texts


@pytest.mark.deep
def test_every_line_gets_its_vector(tiny_encoder: TinyEncoder) -> None:
    folder = tiny_encoder("bert")
    texts = random_texts(1_100, longest=3)  # more than the command embeds at once
    lines = "\n\n".join(texts)
    printed = run_greenroom("embed", str(folder), "-", "--dimensions", "8", stdin=lines)
    assert (printed.returncode, printed.stderr) == (0, "")
    entries = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [entry["text"] for entry in entries] == list(texts)
    assert [entry["index"] for entry in entries] == list(range(0, 2 * len(texts), 2))
    expected = open_embedder(folder).embed(texts, dimensions=8)
    np.testing.assert_allclose([entry["embedding"] for entry in entries], expected, atol=1e-5)


@pytest.mark.deep
def test_what_cannot_be_embedded_is_one_line(tiny_encoder: TinyEncoder, shared: Shared) -> None:
    folder = str(tiny_encoder("bert"))
    url = ("--url", shared(Settings(models=(folder,))).server.address)
    for arguments, stdin, redirected, named in (
        (("-",), "short\n\n" + "hello class " * 200, "", "text 2"),
        (("hello", "-"), "", "", "- reads one text per line"),
        (("hello", ""), "", "", "`input` must not contain an empty string, but item 1 is one"),
        (("hello", "\udcff"), "", "", "not UTF-8"),
        (("--instruction", "x" * 20_000, "hello"), "", "", "`instruction` has 20000 characters"),
        (("-",), "x" * (MAX_TEXT_BYTES + 1), "", "line 1 of stdin has more than 16,777,216 bytes"),
        (("hello",), "", FULL_DISK, "standard output: File too large"),
    ):
        refused = run_greenroom("embed", folder, *url, *arguments, stdin=stdin, redirected=redirected)
        assert refused.returncode in (1, 2)
        assert refused.stdout == ""
        [line] = refused.stderr.splitlines()
        assert named in line
