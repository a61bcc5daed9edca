"""Models of mlx-vlm that neither generate, embed nor rank are rejected, with their purpose named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.encoder_kinds import PURPOSES
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.libraries import library_folder
from greenroom.schemas.problems import ProblemError


def refusal(folder: Path, **config: Any) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ProblemError) as refused:
        detect(folder)
    return refused.value.problem.detail.partition("could not be loaded: ")[2]


@pytest.mark.parametrize(
    ("config", "purpose"),
    [
        ({"model_type": "flux2"}, "draws images"),
        ({"model_type": "qwen_image"}, "draws images"),
        ({"model_type": "z_image"}, "draws images"),
        ({"model_type": "sam3"}, "marks what is in images"),
        ({"model_type": "sam3.1_video"}, "marks what is in images"),
        ({"model_type": "rf-detr"}, "marks what is in images"),
        ({"model_type": "lfm2", "architectures": ["Lfm2BidirectionalForMaskedLM"]}, "fills gaps in texts"),
        ({"model_type": "lfm2_vl", "auto_map": {"AutoModel": "modeling_d1.D1Model"}}, "decides between"),
        ({"model_type": "llada2_moe"}, "writes by diffusion"),
    ],
)
def test_the_purpose_is_told(tmp_path: Path, config: dict[str, Any], purpose: str) -> None:
    found = refusal(tmp_path, **config)
    assert purpose in found
    assert found.endswith(", which is not served here.")


def test_every_purpose_is_a_packages_of_the_library() -> None:
    root = library_folder("mlx_vlm")
    assert root is not None
    packages = {path.name for path in (root / "models").iterdir() if path.is_dir()}
    assert packages >= PURPOSES


@pytest.mark.parametrize(
    ("config", "own"),
    [
        (
            {"model_type": "bert", "auto_map": {"AutoModel": "jinaai/x--modeling_bert.JinaBertModel"}},
            "JinaBertModel",
        ),
        ({"model_type": "xlm-roberta", "auto_map": {"AutoModel": "m.XLMRobertaLoRA"}}, "XLMRobertaLoRA"),
        ({"model_type": "nomic_bert", "auto_map": {"AutoModel": "m.NomicBertModel"}}, "nomic_bert"),
        ({"model_type": "new", "auto_map": {"AutoModel": "m.NewModel"}}, "new"),
    ],
)
def test_code_that_no_library_has_is_not_known_and_no_flag_helps(
    tmp_path: Path, config: dict[str, Any], own: str
) -> None:
    found = refusal(tmp_path, hidden_size=8, **config)
    assert found == f"its architecture '{own}' is not known to the installed mlx-lm, mlx-vlm and mlx-audio."


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "qwen3", "auto_map": {"AutoModelForCausalLM": "m.X"}}, "text"),
        ({"model_type": "deepseek_v2", "auto_map": {"AutoConfig": "m.X"}}, "text"),
        ({"model_type": "internvl_chat", "auto_map": {"AutoModel": "m.X"}}, "vision"),
        ({"model_type": "bert", "auto_map": {"AutoModel": "m.BertModel"}}, "embeddings"),
    ],
)
def test_code_that_a_library_has_too_is_not_needed(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 8}))
    assert detect(tmp_path).model_type == kind


@pytest.mark.parametrize("architecture", ["k2_horizon", "cohere2_moe", "minimax_m3", "nemotron_h_puzzle"])
def test_models_that_only_mlx_vlm_has_and_that_do_not_see_write_text(
    tmp_path: Path, architecture: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": architecture}))
    assert detect(tmp_path).model_type == "text"
