"""Tiny audio codecs in the hub's cache, for architectures whose code takes them from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.models.tiny_orpheus import make_tiny_snac

_DAC = {
    "encoder_dim": 2,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 32,
    "decoder_rates": [8, 8, 4, 2],
    "codebook_size": 1024,
    "codebook_dim": 2,
}
_DESCRIPT: Mapping[str, Mapping[str, Any]] = {
    "mlx-community/descript-audio-codec-44khz": {**_DAC, "n_codebooks": 9, "sample_rate": 44_100},
    "mlx-community/dac-speech-24khz-1.5kbps": {**_DAC, "n_codebooks": 2, "sample_rate": 24_000},
}
"""Configurations of Descript's codec, by repository."""


def make_hub_codecs(cache: Path) -> Path:
    """Put the codecs into a hub cache, as downloads would; return the cache."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_audio.codec.models.descript import DAC

    for repository, config in _DESCRIPT.items():
        root = cache / f"models--{repository.replace('/', '--')}"
        snapshot = root / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text("0" * 40)
        (snapshot / "config.json").write_text(json.dumps(config))
        mx.random.seed(1)
        weights = dict(tree_flatten(DAC(**config).parameters()))
        mx.save_safetensors(str(snapshot / "model.safetensors"), weights)
    return make_tiny_snac(cache)
