"""Tokenizers that expand texts too much are refused before they are used."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from greenroom.engine.tokenizer.growth import check_backend, check_growth


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(steps: str, *listed: Any) -> dict[str, Any]:
    return {"type": "Sequence", steps: list(listed)}


def table(longest: str) -> dict[str, Any]:
    data = (4).to_bytes(4, "little") + b"\1\2\3\4" + b"fi\0" + longest.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


TEN = replace({"Regex": "(.)"}, "aaaaaaaaaa")
SPACES = replace({"String": " "}, "▁")
PIECES = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"normalizer": None, "decoder": None, "post_processor": None},
        {
            "normalizer": sequence(
                "normalizers", {"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")
            )
        },
        {"normalizer": replace({"String": "``"}, '"')},
        {
            "normalizer": sequence(
                "normalizers", table("\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 18)
            )
        },
        {"decoder": sequence("decoders", replace({"String": "▁"}, " "), {"type": "ByteFallback"})},
        {"post_processor": {"type": "TemplateProcessing", "single": PIECES, "pair": PIECES}},
    ],
)
def test_what_real_tokenizers_have_passes(document: dict[str, Any]) -> None:
    check_growth(document)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"normalizer": TEN}, "normalizer may make texts 10 times as long"),
        ({"normalizer": sequence("normalizers", *[TEN] * 9)}, "1,000,000,000 times"),
        ({"normalizer": sequence("normalizers", sequence("normalizers", TEN), TEN)}, "100 times"),
        ({"decoder": sequence("decoders", *[TEN] * 9)}, "decoder may make answers"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 1_000}}, "adds more than 64 characters"),
        ({"normalizer": table("a" * 1_000)}, "adds more than 64 characters"),
        ({"post_processor": {"type": "TemplateProcessing", "single": PIECES * 1_001}}, "adds 1,001 tokens"),
    ],
)
def test_what_makes_texts_much_longer_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_growth(document)


def test_a_tokenizer_made_of_other_files_is_looked_at_too() -> None:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers

    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.decoder = decoders.ByteFallback()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    check_backend(tokenizer)
    check_backend(None)
    ten = normalizers.Replace(Regex("(.)"), "a" * 10)
    tokenizer.normalizer = normalizers.Sequence([ten, ten])
    assert json.loads(tokenizer.normalizer.__getstate__())["type"] == "Sequence"
    with pytest.raises(ValueError, match="100 times"):
        check_backend(tokenizer)
