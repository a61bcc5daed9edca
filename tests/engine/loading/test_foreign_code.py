"""A model folder's own code runs only if the operator trusts it, even if a library would run it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_model import ForeignCodeError, allow_foreign_code
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings

CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast
Path({mark!r}).touch()
class Own(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture(autouse=True)
def _afterwards() -> Iterator[None]:
    yield
    allow_foreign_code(trusted=True)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return the path of a file that exists once the folder's code has run."""
    return tmp_path / "ran"


@pytest.fixture
def folder(tiny_model: Callable[..., Path], tmp_path: Path, mark: Path) -> Path:
    """Return the folder of a model whose configuration and tokenizer name their own code."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / f"own-{tmp_path.name}")
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    name_code(folder / "config.json", AutoModelForCausalLM="own.Own")
    name_code(folder / "tokenizer_config.json", AutoTokenizer=[None, "own.Own"])
    return folder


def name_code(file: Path, **names: Any) -> None:
    """Write the names of the code to run into a configuration."""
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": names}))


def open_model(folder: Path, *, trusted: bool = False) -> None:
    record = detect(folder, trusted)
    assert record.model_type == "text"
    open_adapter(ModelFolder(folder.name, folder, record), Settings(trust_remote_code=trusted), "")


def test_a_model_whose_architecture_is_known_needs_no_trust(folder: Path, mark: Path) -> None:
    (folder / "own.py").unlink()
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    del tokenizer["auto_map"]
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    open_model(folder)


def test_a_tokenizer_of_its_own_runs_only_if_trusted(folder: Path, mark: Path) -> None:
    open_model(folder)
    assert not mark.exists()
    open_model(folder, trusted=True)
    assert mark.exists()


def test_a_tokenizer_that_is_code_alone_is_refused_with_what_would_help(folder: Path, mark: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "baichuan_m1"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    name_code(folder / "config.json", AutoConfig="own.Own")
    tokenizer = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ProblemError) as refused:
        open_model(folder)
    assert refused.value.problem.detail.endswith(
        "its tokenizer is unusable: it brings Python code of its own. If you trust its makers, start "
        "Greenroom with --trust-remote-code."
    )
    assert not mark.exists()


def test_a_library_that_trusts_the_folder_is_refused(folder: Path, mark: Path) -> None:
    from transformers import AutoTokenizer

    allow_foreign_code(trusted=False)
    with pytest.raises(ForeignCodeError, match="--trust-remote-code"):
        AutoTokenizer.from_pretrained(str(folder), trust_remote_code=True)
    assert not mark.exists()
    others = threading.Thread(
        target=AutoTokenizer.from_pretrained, args=(str(folder),), kwargs={"trust_remote_code": True}
    )
    others.start()
    others.join()
    assert mark.exists(), "threads that open no model are not concerned"
