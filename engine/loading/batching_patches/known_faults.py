"""Architectures of mlx-lm that compute padded batches wrong, and the patch for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """A faulty file of mlx-lm, and the patch for its models.

    Args:
        digest: Digest of the faulty file; a release that mends the file has another and is not patched.
        mend: Patch, applied to a loaded model in place.
    """

    digest: str
    mend: Callable[[Any], None]


def _replace(attribute: str, patch: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a patch that replaces a block by its attribute's name in each layer that has one."""

    def mend(model: Any) -> None:
        for layer in model.layers:
            if hasattr(layer, attribute):
                setattr(layer, attribute, patch(getattr(layer, attribute)))

    return mend


def _replace_recurrent(attribute: str, kind: str) -> Callable[[Any], None]:
    """Return a patch that computes padded rows in pieces, for blocks of one class with that name."""
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
    "afm7": KnownFault("70a5e78d3107f05f95401cd66f466682", share_positions),
    "baichuan_m1": KnownFault("6bb7606ca10db70f19a7322a4af5296e", _replace("self_attn", ConvolvedKeys)),
    "bailing_moe_linear": KnownFault(
        "2cd50b78bc6f12753af09996db7b6fd8", _replace_recurrent("attention", "LinearAttention")
    ),
    "gemma2": KnownFault("d9852b1133a2eab0f360dceaef646f54", _replace("self_attn", GroupedHeadsMask)),
    "jamba": KnownFault("aa75fe84ec246ee1a8c5b5c73acaa69e", _replace("mamba", RaggedRows)),
    "longcat_flash_ngram": KnownFault("c821b5151d80b2e756cfaacfc12faadf", _mend_ngrams),
    "mamba": KnownFault("eabb7525c8494acebe4d30d0eeab250c", _replace("mixer", RaggedRows)),
    "nemotron_h": KnownFault(
        "312d41f22e9525db29c55691194be660", _replace_recurrent("mixer", "NemotronHMamba2Mixer")
    ),
    "olmo_hybrid": KnownFault("12a3ed52eb7a8d41be13fa2cc9cfe223", _replace("linear_attn", RaggedRows)),
    "recurrent_gemma": KnownFault("da6f722180ac78aaf2ce568769e8e47f", _mend_recurrent_gemma),
    "rwkv7": KnownFault("2ea45313e1297e3b4b8e1a64742edf74", _mend_rwkv7),
}
"""Known faults by file name; falcon_mamba uses mamba's file.

minimax_m3_vl has no patch, and its rows decode alone: its sparse attention divides the padded cache into
blocks, and dividing each row instead would mean a rewrite.
"""
