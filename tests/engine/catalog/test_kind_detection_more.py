"""Tests of the detected model type of every architecture that a library supports."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.libraries import library_constant, library_folder
from greenroom.schemas.models.capabilities import VectorTraits
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.models.weight_headers import write_weights

SEES_ONLY_WITH_MLX_VLM = {
    "paligemma",
    "smolvlm",
    "idefics3",
    "molmo",
    "phi3_v",
    "internvl_chat",
    "llava_next",
}
WRITES_IN_MLX_LM = {"qwen2_vl", "qwen3_vl", "gemma3", "mistral3", "llava", "pixtral", "kimi_vl"}
WRITES_NO_TEXT = {"sam3", "rfdetr", "yolo11", "flux2", "moge3", "qwen_image", "gliner2_5", "dinov2"}
RERANKER = {"architectures": ["BertForSequenceClassification"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a neutral name."""
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


def kind_of(folder: Path, name: str = "", **config: Any) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    try:
        return detect(folder, name=name).model_type
    except ProblemError as error:
        return "refused" if error.problem.code == "load_failed" else error.problem.code


def kinds_of(folder: Path, library: str, models: str = "models") -> dict[str, str]:
    root = library_folder(library)
    assert root is not None
    names = {path.stem for path in (root / models).iterdir() if not path.name.startswith("_")}
    return {name: kind_of(folder, model_type=name) for name in names}


def test_every_model_of_mlx_lm_writes(folder: Path) -> None:
    kinds = kinds_of(folder, "mlx_lm")
    assert set(kinds.values()) == {"text", "refused"}
    refused = {name for name, kind in kinds.items() if kind == "refused"}
    assert refused <= {
        "activations", "base", "bitlinear_layers", "cache", "gated_delta", "mla", "pipeline", "rope_utils",
        "ssm", "switch_layers",
    }  # fmt: skip


def test_every_model_of_mlx_vlm_is_of_its_kind(folder: Path) -> None:
    kinds = kinds_of(folder, "mlx_vlm")
    assert set(kinds.values()) == {"text", "vision", "embeddings", "refused"}
    assert {kinds[name] for name in SEES_ONLY_WITH_MLX_VLM} == {"vision"}
    assert {kinds[name] for name in WRITES_IN_MLX_LM} == {"text"}, "no weights of anything that sees"
    assert {kinds[name] for name in WRITES_NO_TEXT} == {"refused"}
    assert {name for name, kind in kinds.items() if kind == "embeddings"} >= {
        "bert", "xlm_roberta", "modernbert", "qwen3_embedding", "embedding_gemma2", "llama_bidirec",
    }  # fmt: skip
    assert {kinds[name] for name in ("siglip", "colqwen2_5", "colidefics3", "lfm2_colbert")} == {"refused"}
    assert len([kind for kind in kinds.values() if kind == "vision"]) > 50


def test_every_model_of_mlx_embeddings_makes_vectors_unless_it_also_writes(folder: Path) -> None:
    kinds = kinds_of(folder, "mlx_embeddings")
    assert {name for name, kind in kinds.items() if kind == "text"} == {
        "gemma3_text",
        "lfm2",
        "qwen3",
        "qwen3_vl",
    }
    assert {name for name, kind in kinds.items() if kind == "refused"} == {
        "base", "siglip", "colqwen2_5", "colidefics3",
    }  # fmt: skip
    assert set(kinds.values()) == {"text", "embeddings", "refused"}


def test_every_model_of_mlx_audio_speaks_writes_down_or_is_refused(folder: Path) -> None:
    speaking, hearing = (
        kinds_of(folder, "mlx_audio", "tts/models"),
        kinds_of(folder, "mlx_audio", "stt/models"),
    )
    others = {
        name: kind
        for purpose in ("sts", "vad", "lid", "codec")
        for name, kind in kinds_of(folder, "mlx_audio", f"{purpose}/models").items()
    }
    backbones = {"llama", "qwen3"}
    assert {speaking[name] for name in speaking.keys() - backbones - {"base", "interpolate"}} == {"speech"}
    assert (speaking["llama"], speaking["qwen3"]) == ("text", "text"), "no tokens of sound"
    assert {hearing[name] for name in hearing.keys() - {"base", "nemo"}} == {"transcription"}
    assert {others[name] for name in others.keys() - {"higgs_audio"}} == {"refused"}
    assert others["higgs_audio"] == "speech", "the codec of that name belongs to a model that speaks"


def test_a_folders_name_makes_no_model_speak(tmp_path: Path) -> None:
    for name in ("kokoro", "whisper", "spark"):
        (tmp_path / name).mkdir()
        assert kind_of(tmp_path / name, model_type="llama") == "text"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "moshi"}, "turns speech into speech"),
        ({"model_type": "lfm2_audio"}, "turns speech into speech"),
        ({"model_type": "silero_vad"}, "detects who speaks"),
        ({"model_type": "snac"}, "codec"),
        ({"model_type": "distilbert"}, "'distilbert' is not known"),
        # Dense ones state 16,384 experts too, which is no reason to give.
        ({"model_type": "doge", "num_experts": 16_384, "is_moe": False}, "'doge' is not known"),
        ({"model_type": "bert", "architectures": ["BertForTokenClassification"]}, "marks words"),
        (RERANKER | {"model_type": "bert", "id2label": {str(n): "x" for n in range(5)}}, "into 5 classes"),
        (
            {"model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"]},
            "is not known",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(folder: Path, config: dict[str, Any], why: str) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ProblemError, match=why):
        detect(folder)


@pytest.mark.parametrize(
    ("config", "kind", "architecture"),
    [
        ({"flow_lm": {}, "mimi": {}}, "speech", "pocket_tts"),
        ({"istftnet": {}, "plbert": {}, "vocab": {}}, "speech", "kokoro"),
        ({"n_mels": 80, "n_audio_ctx": 1500, "n_text_ctx": 448}, "transcription", "whisper"),
        ({"target": "nemo.collections.asr.models.rnnt_bpe_models.X"}, "transcription", "parakeet"),
        ({"target": "nemo.collections.asr.models.EncDecMultiTaskModel"}, "transcription", "canary"),
        ({"model_type": "llama", "acoustic_dim": 512}, "speech", "tada"),
        (
            {"model_type": "vibevoice", "architectures": ["VibeVoiceForASRTraining"]},
            "transcription",
            "vibevoice",
        ),
        ({"model_type": "vibevoice", "architectures": ["VibeVoiceForX"]}, "speech", "vibevoice"),
    ],
)
def test_models_that_give_no_name_are_known_by_their_fields(
    folder: Path, config: dict[str, Any], kind: str, architecture: str
) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    record = detect(folder)
    assert (record.model_type, record.architecture) == (kind, architecture)
    assert record.speaks == (kind == "speech")
    assert record.transcribes == (kind == "transcription")


@pytest.mark.parametrize(
    ("name", "config", "kind"),
    [
        ("org/Qwen3-Reranker-0.6B-4bit", {"model_type": "qwen3"}, "rerank"),
        ("org/all-roberta", {"model_type": "roberta"}, "embeddings"),
        ("org/bge-reranker-v2-m3", {"model_type": "xlm-roberta"}, "rerank"),
        ("org/jina-rerank-tiny", {"model_type": "bert"}, "rerank"),
        ("org/reranking-prankster", {"model_type": "mamba"}, "text"),
        ("org/m", {"model_type": "bert", "sentence_transformers": {"activation_fn": "x"}}, "rerank"),
        ("org/m", {"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]}, "rerank"),
        ("org/Qwen3-Embedding-0.6B-4bit-DWQ", {"model_type": "qwen3"}, "embeddings"),
        (
            "org/embeddinggemma-300m",
            {"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"]},
            "embeddings",
        ),
        ("org/Embedded-Chat", {"model_type": "qwen3"}, "text"),
        ("org/m", {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "text"),
    ],
)
def test_decoders_that_rank_or_embed_are_known(
    folder: Path, name: str, config: dict[str, Any], kind: str
) -> None:
    assert kind_of(folder, name, **config) == kind


def test_sentence_transformers_files_tell_embedding_from_ranking(folder: Path) -> None:
    (folder / "modules.json").write_text("[]")
    assert kind_of(folder, model_type="qwen3") == "embeddings"
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    assert kind_of(folder, model_type="qwen3") == "rerank"
    assert kind_of(folder, model_type="mpnet") == "refused", "nothing here can compute it"


def test_a_folder_that_holds_a_tower_sees_although_its_text_half_could_be_served(folder: Path) -> None:
    config: dict[str, Any] = {"model_type": "gemma3", "vision_config": {}, "text_config": {}}
    write_weights(folder / "model.safetensors", "language_model.model.layers.0.mlp.up_proj.weight")
    assert kind_of(folder, **config) == "text"
    write_weights(
        folder / "model.safetensors", "vision_tower.embeddings.weight", "language_model.norm.weight"
    )
    assert kind_of(folder, **config) == "vision"
    assert detect(folder, allow_vision=False).model_type == "text"
    assert kind_of(folder, model_type="llama") == "text", "nothing here could see with it"
    assert kind_of(folder, model_type="paligemma") == "vision"
    assert detect(folder, allow_vision=False).model_type == "vision", "there is no text half to serve"


def test_a_vision_models_senses_are_recorded(folder: Path) -> None:
    kind_of(folder, model_type="paligemma")
    assert detect(folder).inputs == ("text", "image")
    assert not detect(folder).multi_image
    kind_of(folder, model_type="minicpmo")
    assert "audio" not in detect(folder).inputs, "a conversion may lack the tower that hears"
    kind_of(folder, model_type="minicpmo", audio_config={})
    assert detect(folder).inputs == ("text", "image", "audio")
    assert detect(folder).multi_image
    kind_of(folder, model_type="glm4v")
    assert detect(folder).inputs == ("text", "image", "video")


def test_an_embedding_models_vectors_are_recorded(folder: Path) -> None:
    kind_of(folder, model_type="bert", hidden_size=384, max_position_embeddings=512)
    assert detect(folder).vectors == VectorTraits(384, "mean", normalized=True), "what is usual"
    steps = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    steps += [{"type": "x.Pooling", "path": "1_P"}, {"type": "x.Dense", "path": "2_D"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_P").mkdir()
    (folder / "1_P" / "config.json").write_text('{"pooling_mode": ["cls", "lasttoken"]}')
    (folder / "2_D").mkdir()
    (folder / "2_D" / "config.json").write_text('{"in_features": 768, "out_features": 100}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    assert detect(folder).vectors == VectorTraits(100, "cls+last", normalized=False)
    assert detect(folder).context == 256
    steps[1]["path"] = "../../etc"
    (folder / "modules.json").write_text(json.dumps(steps))
    assert detect(folder).vectors is None, "such a model cannot be used"


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "modernbert", "qwen3", "gemma3_text"])
def test_what_is_recorded_of_vectors_is_what_the_engine_makes(
    tiny_encoder: Callable[..., Path], kind: str
) -> None:
    record = detect(tiny_encoder(kind))
    assert record.vectors is not None
    [vector] = open_embedder(tiny_encoder(kind)).embed(("the man walks",))
    assert vector.shape == (record.vectors.dimensions,)
    assert bool(abs(float((vector * vector).sum()) - 1) < 1e-5) == record.vectors.normalized


def test_positions_of_a_roberta_begin_behind_its_padding(folder: Path) -> None:
    kind_of(folder, model_type="xlm-roberta", max_position_embeddings=514, pad_token_id=1, hidden_size=8)
    assert detect(folder).context == 512


def test_voices_are_those_that_lie_in_the_folder(folder: Path) -> None:
    kind_of(folder, model_type="kokoro")
    assert detect(folder).voices == ()
    (folder / "voices").mkdir()
    for file in ("bella.safetensors", "adam.pt", "adam.safetensors", "README.md"):
        (folder / "voices" / file).touch()
    assert detect(folder).voices == ("adam", "bella")


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("qwen2_vl", ("text", "image", "video")),
        ("smolvlm", ("text", "image")),
        ("gemma3", ("text", "image")),
        ("gemma4", ("text", "image", "audio", "video")),
    ],
)
def test_real_folders_of_models_that_see_are_known(
    tiny_vision_model: Callable[..., Path], kind: str, inputs: tuple[str, ...]
) -> None:
    record = detect(tiny_vision_model(kind))
    assert (record.model_type, record.inputs) == ("vision", inputs)


def test_real_folders_of_models_that_speak_or_hear_are_known(tiny_pocket: Path, tiny_whisper: Path) -> None:
    assert detect(tiny_pocket).speaks
    assert detect(tiny_whisper).transcribes
    assert detect(tiny_whisper).inputs == ("audio",)


@pytest.mark.deep
def test_kinds_are_told_on_many_threads_at_once() -> None:
    look = partial(library_constant.__wrapped__, "mlx_lm", "utils.py", "MODEL_REMAPPING")
    with ThreadPoolExecutor(8) as threads:
        tables = list(threads.map(lambda _: look(), range(64)))
    assert tables[0]
    assert all(table == tables[0] for table in tables)
