"""Fields of tiny vision models that read documents, for those that differ from the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.architectures.vision.own_fields import VOCABULARY, OwnFields

_SAM = {"image_size": 256, "width": 64, "layers": 2, "heads": 1, "global_attn_indexes": (1,)}
"""Sizes of DeepSeek-OCR's first tower, which its configuration cannot set."""
_LLAMA = {
    "model_type": "deepseek_v2",
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "v_head_dim": 16,
    "topk_method": "greedy",
    "scoring_func": "softmax",
}
_DEEPSEEK_OCR: dict[str, Any] = {
    "parts": {
        "text_config": _LLAMA,
        "vision_config": {"model_type": "vision", "hidden_size": 1024, "num_attention_heads": 16},
        "projector_config": {"projector_type": "linear", "input_dim": 2048, "n_embed": 64},
    },
    "tokens": ("<\uff5c\u2581pad\u2581\uff5c>", "<|User|>", "<|Assistant|>"),
    "beginning": "<|endoftext|>",
    "processor": {"candidate_resolutions": [[256, 256]], "patch_size": 16, "downsample_ratio": 4},
    "cuts_last": True,
    "images": 1,
}

_PARSE_TOWER = {
    "hidden_size": 64,
    "num_heads": 4,
    "num_layers": 2,
    "patch_size": 16,
    "image_size": [128, 96],
    "final_size": [128, 96],
    "neck_dim": 64,
}

_PARSE_DECODER = {
    "d_model": 64,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "decoder_layers": 2,
    "vocab_size": VOCABULARY,
}

READING: Mapping[str, OwnFields] = {
    "deepseekocr": OwnFields(
        **_DEEPSEEK_OCR,
        sizes={
            "config:SAMViTConfig": _SAM,
            "processing_deepseekocr:DeepseekOCRProcessor.__call__": {"base_size": 256, "image_size": 128},
        },
    ),
    "dots_ocr": OwnFields(
        mark_token="<|imgpad|>",
        mark="<|img|><|imgpad|><|endofimg|>",
        tokens=("<|img|>", "<|endofimg|>"),
        ids={"<|imgpad|>": 151665},
        parts={"text_config": {"tie_word_embeddings": True}, "vision_config": {"temporal_patch_size": 1}},
        preprocessor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "temporal_patch_size": 1,
            "size": {"shortest_edge": 784, "longest_edge": 12544},
        },
    ),
    "falcon_ocr": OwnFields(
        mark_token="<|image|>",
        tokens=("<cls>", "<end>", "<one>", "<two>", "<three>", "<four>"),
        root={
            "dim": 64,
            "n_layers": 2,
            "n_heads": 4,
            "head_dim": 16,
            "n_kv_heads": 2,
            "ffn_dim": 96,
            "img_id": "token:<|image|>",
            "img_end_id": "token:<end>",
            "image_cls_token_id": "token:<cls>",
            "image_reg_1_token_id": "token:<one>",
            "image_reg_2_token_id": "token:<two>",
            "image_reg_3_token_id": "token:<three>",
            "image_reg_4_token_id": "token:<four>",
        },
        images=1,
    ),
    "florence2": OwnFields(
        tokenizer={"bos_token": "<|endoftext|>"},
        preprocessor={"image_seq_length": 5, "size": {"height": 64, "width": 64}},
        parts={
            "text_config": {
                "d_model": 64,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 96,
                "decoder_ffn_dim": 96,
                "encoder_layers": 1,
                "decoder_layers": 1,
            },
            "vision_config": {
                "depths": [1, 1, 1, 1],
                "dim_embed": [16, 32, 64, 64],
                "num_heads": [2, 2, 2, 2],
                "num_groups": [2, 2, 2, 2],
                "patch_size": [7, 3, 3, 3],
                "window_size": 4,
                "image_size": [64, 64],
            },
        },
        images=1,
    ),
    "got": OwnFields(
        mark_token="<imgpad>",
        mark="<image>",
        flat=True,
        tokens=("<img>", "</img>", "<image>"),
        root={"im_patch_token": "token:<imgpad>"},
        model_type="GOT",
        parts={
            "vision_config": {
                "img_size": 256,
                "patch_size": 16,
                "embed_dim": 64,
                "out_chans": 32,
                "out_dim": 64,
                "window_size": 14,
                "global_attn_indexes": [1],
            }
        },
        sizes={
            "processing_got:GotOcrImageProcessor": {"image_size": 256},
            "processing_got:build_got_prompt": {"image_token_len": 16},
        },
        images=1,
    ),
    "jina_vlm": OwnFields(
        mark_token="<|image|>",
        ids={"<im_patch>": 151665, "<im_start>": 151666, "<im_end>": 151667, "<im_col>": 151668},
        parts={
            "text_config": {
                "n_layers": 2,
                "additional_vocab_size": 8,
                "tie_word_embeddings": True,
                "block_config": {
                    "attn_config": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 16},
                    "ffn_config": {"size": 96},
                },
            },
            "vision_config": {
                "n_layers": 2,
                "input_size": [112, 112],
                "image_size": 112,
                "block_config": {
                    "attn_config": {"n_heads": 4, "head_dim": 16},
                    "ffn_config": {"size": 96},
                },
                "vl_connector_config": {"mlp_projector_config": {"size": 96}},
                "vit_layers": [-1, -2],
                "output_size": 64,
            },
        },
        sizes={
            "image_processor:ImageProcessor": {
                "base_input_size": (112, 112),
                "max_crops": 2,
                "overlap_margins": (2, 2),
            }
        },
    ),
    "nemotron_parse": OwnFields(
        root={
            "encoder": _PARSE_TOWER,
            "decoder": _PARSE_DECODER,
            "image_size": [128, 96],
            "text_config": None,  # its folders have none, and transformers refuses two of them
        },
        parts={"vision_config": _PARSE_TOWER},
        sizes={"processing_nemotron_parse:NemotronParseImageProcessor": {"final_size": (128, 96)}},
        writes_alone=False,
        asks_library=False,  # which finds no processor of it here
        images=1,
    ),
    "paddleocr_vl": OwnFields(
        mark_token="<|IMAGE_PLACEHOLDER|>",
        mark="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        tokens=("<|IMAGE_START|>", "<|IMAGE_END|>"),
        flat=True,
        root={"vision_start_token_id": "token:<|IMAGE_START|>", "vision_end_token_id": "token:<|IMAGE_END|>"},
        parts={
            "text_config": {
                "hidden_size": 1024,
                "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]},
                "rope_parameters": None,
                "use_bias": False,
            }
        },
        preprocessor={"temporal_patch_size": 1},
        images=1,
    ),
    "unlimited_ocr": OwnFields(
        **{**_DEEPSEEK_OCR, "cuts_last": False},
        model_type="unlimited-ocr",
        sizes={
            "config:SAMViTConfig": _SAM,
            "processing_unlimitedocr:UnlimitedOCRProcessor.__call__": {"base_size": 256, "image_size": 128},
        },
    ),
}
"""Fields by package."""
