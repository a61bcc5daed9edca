"""Verdicts on the test results of other projects' clients."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greenroom.tests.compat.client_table import HERE, read_clients
from greenroom.tests.compat.verdict import read_verdict

REPORT = """\
<testsuites><testsuite>
<testcase classname="clients.openai_sdk" name="test_chat"/>
<testcase classname="langchain.TestChat" name="test_stream[v1]">
<failure message="assert 3 == 4&#10;more"/></testcase>
<testcase classname="langchain.TestChat" name="test_image"><skipped message="no images"/></testcase>
<testcase classname="langchain.TestChat" name="test_count"/>
<testcase classname="langchain.TestChat" name="test_count"><error message="in its teardown"/></testcase>
</testsuite></testsuites>"""


def test_what_fails_and_is_not_known_to_is_told() -> None:
    known = {"TestChat::test_stream[v1]": "no model that small counts", "test_chat": "", "test_gone": ""}
    verdict = read_verdict(REPORT, known, ended=True)
    assert verdict.outcomes["TestChat::test_image"] == "skipped"
    assert verdict.unexpected == ["TestChat::test_count"]
    assert verdict.details["TestChat::test_stream[v1]"] == "assert 3 == 4"
    assert verdict.outdated == ["test_chat", "test_gone"]
    assert not verdict.good


def test_only_a_run_to_the_end_is_good() -> None:
    known = dict.fromkeys(("TestChat::test_stream[v1]", "TestChat::test_count"), "known")
    assert read_verdict(REPORT, known, ended=True).good
    assert not read_verdict(REPORT, known, ended=False).good
    assert not read_verdict("<testsuites/>", {}, ended=True).good


def test_every_client_has_tests_and_pinned_packages() -> None:
    clients = read_clients()
    assert {client.file for client in clients} == {
        path.name for pattern in ("*.py", "*.mjs") for path in (HERE / "clients").glob(pattern)
    }
    for client in clients:
        of_node = client.packages if client.runs_on_node else client.node_packages
        of_python = () if client.runs_on_node else client.packages
        assert of_node or of_python
        assert all(re.fullmatch(r".+@\d+\.\d+\.\d+", package) for package in of_node)
        assert all(re.fullmatch(r".+==\d.*", package) for package in of_python)


def test_failures_of_no_client_are_refused(tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text('[one]\nfile = "one.py"\npackages = []')
    (tmp_path / "known_failures.toml").write_text('[other]\ntest = "reason"')
    with pytest.raises(ValueError, match="other"):
        read_clients(tmp_path)
