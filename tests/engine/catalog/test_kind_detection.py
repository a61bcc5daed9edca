"""Tests of model detection from files; hostile and broken files are refused with a clear error."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.families import FAMILIES, family_of
from greenroom.engine.catalog.kind_detection import detect
from greenroom.schemas.models.capabilities import Family
from greenroom.schemas.problems import Problem, ProblemError


def model(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def refusal(folder: Path, name: str = "org/model") -> Problem:
    with pytest.raises(ProblemError) as caught:
        detect(folder, name=name)
    return caught.value.problem


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("qwen2", "qwen"),
        ("phi3", "phi"),
        ("nemotron_h", "nemotron"),
        ("apertus", "apertus"),
        ("jamba", "jamba"),
        ("hunyuan_v1_dense", "hunyuan"),
        ("qwen3", "qwen"),
        ("qwen3_moe", "qwen"),
        ("qwen3_5", "qwen"),
        ("glm4", "glm4"),
        ("glm4_moe", "glm4"),
        ("llama", "llama"),
        ("llama4", "llama"),
        ("gemma", "gemma"),
        ("gemma3_text", "gemma"),
        ("gemma3n", "gemma"),
        ("mistral", "mistral"),
        ("mistral3", "mistral"),
        ("ministral3", "mistral"),
        ("mixtral", "mistral"),
        ("lfm2", "liquid"),
        ("lfm2_moe", "liquid"),
        ("granite", "granite"),
        ("granitemoehybrid", "granite"),
        ("stablelm", "default"),
        ("deepseek_v3", "deepseek"),
        ("nemotron-nas", "nemotron_nas"),
        ("mimo", "mimo"),
        ("gpt_oss", "gpt_oss"),
    ],
)
def test_architectures_have_families(tmp_path: Path, architecture: str, family: Family) -> None:
    record = detect(model(tmp_path, model_type=architecture, max_position_embeddings=2048))
    assert (record.model_type, record.family, record.architecture) == ("text", family, architecture)
    assert record.context == 2048


def test_every_architecture_of_mlx_lm_is_text(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.origin is not None
    modules = {path.stem for path in (Path(spec.origin).parent / "models").glob("*.py")}
    text = set()
    for name in modules:
        try:
            record = detect(model(tmp_path, model_type=name))
        except ProblemError:
            continue
        if record.model_type == "text":
            text.add(record.architecture)
    assert len(text) > 100
    assert {"cache", "base", "rope_utils", "__init__", "switch_layers"}.isdisjoint(text)
    assert {"llama", "qwen3", "solar_open", "lfm2-vl", "nemotron-nas"} <= text


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "whisper"}, "transcription"),
        ({"model_type": "pocket_tts"}, "speech"),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "rerank"),
        ({"model_type": "bert"}, "embeddings"),
        ({"model_type": "xlm-roberta"}, "embeddings"),
        ({"model_type": "modernbert"}, "embeddings"),
        ({"model_type": "paligemma", "vision_config": {}}, "vision"),
        ({"model_type": "GOT"}, "vision"),
    ],
)
def test_other_kinds_are_recognized(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    assert detect(model(tmp_path, **config)).model_type == kind


def test_an_embedding_model_with_a_chat_models_architecture_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert detect(model(tmp_path, model_type="qwen3")).model_type == "embeddings"


@pytest.mark.parametrize("architecture", ["qwen2_vl", "qwen3_vl", "gemma3", "mistral3"])
def test_the_text_part_of_a_model_that_sees_is_served(tmp_path: Path, architecture: str) -> None:
    record = detect(
        model(
            tmp_path,
            model_type=architecture,
            vision_config={},
            text_config={"model_type": "qwen3", "max_position_embeddings": 999},
        )
    )
    assert (record.model_type, record.context) == ("text", 999)


def test_code_is_refused_unless_trusted(tmp_path: Path) -> None:
    folder = model(tmp_path, model_type="llama", model_file="evil.py")
    problem = refusal(folder)
    assert (problem.status, problem.code) == (503, "load_failed")
    assert "model_file" in problem.detail
    assert "--trust-remote-code" in problem.detail
    assert detect(folder, trust_remote_code=True).architecture == "llama"


def test_an_unknown_architecture_with_code_of_its_own_is_text_if_trusted(tmp_path: Path) -> None:
    folder = model(tmp_path, model_type="homegrown", model_file="model.py", max_position_embeddings=64)
    assert detect(folder, trust_remote_code=True).context == 64


BROKEN: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"[]", "not hold a JSON object"),
    (b"null", "not hold a JSON object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    (b"\xff\xfe\x00", "not"),
    (b'{"model_type": ' + b"9" * 10_000 + b"}", "not"),
    (b" " * (17 * 2**20), "larger than"),
    (b"{}", "names no model_type"),
    (b'{"model_type": 5}', "names no model_type"),
    (b'{"model_type": ""}', "names no model_type"),
    (b'{"model_type": "../../../etc/passwd"}', "names no model_type"),
    (b'{"model_type": "models/llama"}', "names no model_type"),
    (b'{"model_type": ".."}', "names no model_type"),
    (b'{"model_type": "unheard_of"}', "'unheard_of' is not known"),
    (b'{"model_type": "cache"}', "'cache' is not known"),
]


@pytest.mark.parametrize(("content", "reason"), BROKEN)
def test_a_broken_config_is_a_load_failure_that_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    problem = refusal(tmp_path)
    assert (problem.status, problem.code) == (503, "load_failed")
    assert "org/model" in problem.detail
    assert reason in problem.detail
    assert len(problem.detail) < 400


def test_a_missing_folder_or_config_is_a_load_failure(tmp_path: Path) -> None:
    assert "there is no config.json" in refusal(tmp_path).detail
    assert refusal(tmp_path / "nowhere").code == "load_failed"
    (tmp_path / "config.json").mkdir()
    assert refusal(tmp_path).code == "load_failed"


def test_detecting_imports_no_model_library(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from greenroom.engine.catalog.catalog import Catalog\n"
        "from greenroom.engine.catalog.kind_detection import detect\n"
        f"detect(Path({str(model(tmp_path, model_type='qwen3'))!r})); Catalog().entries()\n"
        "heavy = {'mlx', 'mlx_lm', 'mlx_vlm', 'mlx_audio', 'transformers', 'numpy', 'huggingface_hub'}\n"
        "sys.exit(', '.join(heavy & {name.partition('.')[0] for name in sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_family_of_an_unknown_architecture() -> None:
    assert family_of("unheard_of") == "default"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("org/Qwen3-4B-4bit", "qwen"),
        ("mlx-community/GLM-4.7-Flash-4bit", "glm4"),
        ("Meta-Llama-3.1-8B", "llama"),
        ("codegemma-7b-it", "gemma"),
        ("Devstral_Small_2507", "mistral"),
        ("gpt-oss-20b-MXFP4", "gpt_oss"),
        ("Phi-4-mini", "phi"),
        ("my/models/granite", "granite"),
        ("DeepSeek-R1-Distill-Qwen-7B", "deepseek"),
        # The owner's name is not the model's, and a part of a word is no word.
        ("Qwen/other", "default"),
        ("dolphin-3.0", "default"),
        ("graphite-4bit", "default"),
        ("", "default"),
    ],
)
def test_a_name_tells_the_family_where_the_configuration_does_not(
    tmp_path: Path, name: str, family: Family
) -> None:
    folder = model(tmp_path, model_type="stablelm")
    assert detect(folder, name=name).family == family
    # The configuration goes before any name.
    assert detect(model(tmp_path, model_type="jamba"), name=name).family == "jamba"


def test_every_family_is_found_by_its_names() -> None:
    for family, traits in FAMILIES.items():
        assert {family_of("unheard_of", name=f"org/{name}-7b") for name in traits.names} <= {family}
    named = {family for family, traits in FAMILIES.items() if traits.names}
    assert named == FAMILIES.keys() - {"default", "nemotron_nas"}


def test_a_nested_configuration_tells_the_family_before_the_name(tmp_path: Path) -> None:
    nested = {"model_type": "mistral", "max_position_embeddings": 2048}
    folder = model(tmp_path, model_type="llava_next", text_config=nested)
    assert detect(folder, name="org/llava-v1.6-qwen").family == "mistral"
    folder = model(tmp_path, model_type="llava_next", text_config={**nested, "model_type": "unheard_of"})
    assert detect(folder, name="org/llava-v1.6-qwen").family == "qwen"
