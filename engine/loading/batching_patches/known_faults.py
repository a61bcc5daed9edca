"""What is wrong in which of mlx-lm's files when rows of unequal length are computed together."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.loading.batching_patches.convolved_keys import ConvolvedKeys
from greenroom.engine.loading.batching_patches.grouped_heads_mask import GroupedHeadsMask
from greenroom.engine.loading.batching_patches.ngram_context import NgramContext
from greenroom.engine.loading.batching_patches.ragged_rows import RaggedRows
from greenroom.engine.loading.batching_patches.reused_keys import share_positions
from greenroom.engine.loading.batching_patches.row_starts import RowStarts


@attrs.frozen
class KnownFault:
    """A file of mlx-lm and what mends its models.

    Args:
        digest: Of the file as it is known, so that a release that mends it is not patched.
        mend: Changes a loaded model in place.
    """

    digest: str
    mend: Callable[[Any], None]


@cache
def source_digest(module: str) -> str:
    """Return what tells one version of an imported module's file from another."""
    source = sys.modules[module].__file__
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16] if source else ""


def _replace(attribute: str, patch: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return what replaces the blocks of that name in all layers which have one."""

    def mend(model: Any) -> None:
        for layer in model.layers:
            if hasattr(layer, attribute):
                setattr(layer, attribute, patch(getattr(layer, attribute)))

    return mend


def _replace_recurrent(attribute: str, kind: str) -> Callable[[Any], None]:
    """Return what cuts rows for blocks of one class, where layers of several kinds call theirs alike."""
    return _replace(attribute, lambda block: RaggedRows(block) if type(block).__name__ == kind else block)


def _mend_rwkv7(model: Any) -> None:
    model.layers[:] = [RaggedRows(layer) for layer in model.layers]


def _mend_recurrent_gemma(model: Any) -> None:
    _replace_recurrent("temporal_block", "RecurrentBlock")(model)
    for layer in model.layers:
        if isinstance(layer.temporal_block, RaggedRows):
            layer.temporal_block.block.rg_lru = RowStarts(layer.temporal_block.block.rg_lru)


def _mend_ngrams(model: Any) -> None:
    model.model.ngram_embeddings = NgramContext(model.model.ngram_embeddings)


KNOWN_FAULTS: Mapping[str, KnownFault] = {
    "afm7": KnownFault("8e899c1437ec1591", share_positions),
    "baichuan_m1": KnownFault("688621fae890c9f7", _replace("self_attn", ConvolvedKeys)),
    "bailing_moe_linear": KnownFault("2ad913ff8929dbe6", _replace_recurrent("attention", "LinearAttention")),
    "gemma2": KnownFault("7e0b7bb806d7d431", _replace("self_attn", GroupedHeadsMask)),
    "jamba": KnownFault("f0d5e5551127179b", _replace("mamba", RaggedRows)),
    "longcat_flash_ngram": KnownFault("1bafd3f7672944ba", _mend_ngrams),
    "mamba": KnownFault("a7cd1376163cabd0", _replace("mixer", RaggedRows)),
    "nemotron_h": KnownFault("c6d657b2abef8308", _replace_recurrent("mixer", "NemotronHMamba2Mixer")),
    "olmo_hybrid": KnownFault("c4c7e8ed1c15bf25", _replace("linear_attn", RaggedRows)),
    "recurrent_gemma": KnownFault("ba0375d5bb3a80e0", _mend_recurrent_gemma),
    "rwkv7": KnownFault("198752c041568cd7", _mend_rwkv7),
}
"""By the name of the file; falcon_mamba's is mamba.

Not mended is minimax_m3_vl, whose rows decode alone: its sparse attention cuts blocks where the padded cache
has them, and to cut them by row would be to write it anew.
"""
