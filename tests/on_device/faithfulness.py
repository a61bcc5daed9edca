"""Comparison of tiny models' answers with mlx-lm's on this machine's device, as a table in Markdown.

python -m greenroom.tests.on_device.faithfulness qwen3 gemma3
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import attrs

from greenroom.tests.support import surroundings

LARGEST_SHORTFALL = {"cpu": 1e-3, "gpu": 5e-2}
"""Largest accepted gap between the top logit and a chosen token's, by device: in a batch, sums are computed
in another order.
"""


@attrs.define
class Agreement:
    """The comparison of one model's answers with mlx-lm's.

    Args:
        equal: Number of answers that are equal, token for token.
        others: Number of answers that differ because logits nearly tie.
        shortfall: Largest gap in those answers between the top logit and the chosen token's.
        errors: Other errors.
    """

    kind: str
    equal: int = 0
    others: int = 0
    shortfall: float = 0.0
    errors: list[str] = attrs.field(factory=list)

    def failures(self, limit: float) -> list[str]:
        """Return the errors, given the largest accepted gap."""
        wrong = ["it chose a token that was not the likeliest"] if self.shortfall > limit else []
        return [*self.errors, *wrong]

    def row(self, limit: float) -> str:
        """Return the model's row of the table."""
        failed = "; ".join(self.failures(limit))
        return f"| {self.kind} | {self.equal} | {self.others} | {self.shortfall:.2g} | {failed} |"


def compare(kind: str, folder: Path) -> Agreement:
    """Answer overlapping requests with each configuration of the engine, and compare the answers."""
    import pytest

    from greenroom.tests.support.engines.schedules import (
        OVERLAPPING,
        EngineSetup,
        logit_shortfall,
        run_schedule,
    )
    from greenroom.tests.support.engines.text_engines import expected

    found = Agreement(kind)
    usual = EngineSetup(4, 512, 250.0, 2.0, 1.0, 0.01, 32, 0)
    caching = attrs.evolve(usual, prefix_cache_bytes=1 << 26)
    moving = attrs.evolve(usual, min_chunk=7, chunk_factor=1, compaction_threshold=0.0, rearrange_steps=1)
    for setup in (usual, caching, caching, moving):
        with pytest.MonkeyPatch.context() as patch:
            driver = setup.driver(folder, patch)
            run_schedule(driver, OVERLAPPING)
        for request, answer in zip(OVERLAPPING, driver.tokens, strict=True):
            if answer == expected(folder, request.prompt, request.max_tokens)[: len(answer)]:
                found.equal += 1
                continue
            found.others += 1
            found.shortfall = max(found.shortfall, logit_shortfall(folder, request.prompt, answer))
    return found


def main(kinds: Sequence[str]) -> int:
    """Print a table of these models; return 1 if any answer is wrong."""
    with tempfile.TemporaryDirectory(prefix="greenroom-on-device-") as name:
        home = Path(name)
        surroundings.neutralize(home)
        import mlx.core as mx

        from greenroom.engine.loading.devices import use_device
        from greenroom.schemas.settings.settings import Settings
        from greenroom.tests.support.models.tiny_models import FAMILIES, make_tiny_model, make_tokenizer

        use_device(Settings())
        device = mx.default_device().type.name
        if device == "gpu":
            os.environ.pop("MLX_DISABLE_COMPILE", None)
        limit = LARGEST_SHORTFALL[device]
        make_tokenizer(home)
        print(f"Computed on the {device}; a logit may be {limit} behind the largest.\n")
        print("| model | answers equal to mlx-lm's | another way at near ties | largest shortfall | failed |")
        print("|---|---|---|---|---|")
        failed = False
        for kind in kinds or (*FAMILIES, "ministral", "granite", "lfm2"):
            try:
                found = compare(kind, make_tiny_model(kind, home / kind, home))
            except Exception as error:
                traceback.print_exc()
                found = Agreement(kind, errors=[f"{type(error).__name__}: {error}"])
            print(found.row(limit), flush=True)
            failed = failed or bool(found.failures(limit))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
