"""The formula, the workflow and the documents of a release, of which nothing is published here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from greenroom.tests.support.packages.homebrew import PYTHON, formula
from greenroom.tests.support.packages.locked import MAC, ROOT, installed_on

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture
def written(tmp_path: Path) -> str:
    wheel = tmp_path / f"greenroom-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    text = formula(wheel)
    assert f'sha256 "{sha256(b"a wheel").hexdigest()}"' in text
    return text


def test_the_formula_has_every_package_of_a_mac_as_a_wheel_with_its_hash(written: str) -> None:
    resources = re.findall(
        r'  resource "(.+)" do\n    url "(https://files\.pythonhosted\.org/\S+\.whl)", using: :nounzip\n'
        r'    sha256 "[0-9a-f]{64}"\n  end\n',
        written,
    )
    names = [name for name, _ in resources]
    assert names == sorted({wish.name for wish in installed_on(MAC, PYTHON)})
    assert {"mlx", "mlx-metal", "mlx-lm", "trio"} <= {*names}
    assert written.count("resource ") == len(names)
    for name, url in resources:
        assert re.search(r"-(?:any|macosx_1[0-4]_\d+_(?:arm64|universal2))\.whl$", url), name


def test_the_formula_follows_brew_s_rules_of_style(written: str) -> None:
    [description] = re.findall(r'^  desc "(.+)"$', written, re.M)
    assert len(description) <= 80  # FormulaAudit/Desc
    assert re.match(r"(?!(?:The|An?|Greenroom)\b)[A-Z].*[^.]$", description)
    usual = ["include", "desc", "homepage", "url", "sha256", "license", "depends_on", "resource"]
    usual += ["def", "service", "test"]
    order = re.findall(rf"^  ({'|'.join(usual)})\b", written, re.M)
    assert list(dict.fromkeys(order)) == usual  # FormulaAudit/ComponentsOrder
    assert "'" not in written  # Style/StringLiterals
    assert not re.search(r"[ \t]$|\n\n\n", written, re.M)


@pytest.mark.skipif(shutil.which("ruby") is None, reason="this machine has no Ruby")
def test_the_formula_is_ruby(written: str) -> None:
    done = subprocess.run(["ruby", "-wc"], input=written, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Syntax OK\n", "")


def test_only_the_last_step_of_a_release_may_publish_and_no_token_is_kept() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert (publish["needs"], publish["environment"]["name"]) == ("build", "pypi")
    assert "secrets." not in text
    targets = re.findall(r"run: make ([\w-]+)", text)
    assert targets == ["release-check", "install-check"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in targets)


@pytest.mark.parametrize("page", ["README.md", "notes/guide.md"])
def test_the_pages_name_the_version_of_pyproject(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"\b\d+\.\d+\.\d+(?=, not released|-py3-none)", text)) == {VERSION}
