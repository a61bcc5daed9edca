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
UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ẞ": "SS"}
VOWELS = [replace({"String": vowel}, vowel.upper() * 4) for vowel in "aeiou"]
CALM = replace({"Regex": r"\s+"}, " ")
LOWER = {"type": "Lowercase"}
LIGATURE = [replace({"String": letter}, "\N{LATIN SMALL LIGATURE FI}") for letter in "fi"]
BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
CHINESE = [replace({"String": " "}, "中")]
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
        {"normalizer": sequence("normalizers", *[replace({"String": of}, to) for of, to in UMLAUTS.items()])},
        {"normalizer": sequence("normalizers", {"type": "NFC"}, SPACES, {"type": "ByteLevel"})},
        {"normalizer": sequence("normalizers", BERT, *[CALM] * 9)},
        {"normalizer": sequence("normalizers", *[replace({"Regex": r"[^\p{L}'\s]+"}, " ")] * 9, LOWER)},
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
        ({"normalizer": sequence("normalizers", *[replace({"String": "a"}, "aa")] * 9)}, "512 times"),
        ({"normalizer": sequence("normalizers", replace({"String": "ä"}, "aeiou"), *VOWELS)}, "20 times"),
        ({"normalizer": sequence("normalizers", *[replace({"Regex": "x*"}, "y")] * 9)}, "512 times"),
        ({"normalizer": sequence("normalizers", *[replace({"Regex": "(?=a)|[["}, "a")] * 9)}, "512 times"),
        ({"normalizer": sequence("normalizers", *[{"type": "ByteLevel"}] * 9)}, "262,144 times"),
        ({"normalizer": sequence("normalizers", *[*LIGATURE, {"type": "NFKC"}] * 9)}, "times as long"),
        (
            {"normalizer": sequence("normalizers", *[BERT, *CHINESE] * 9)},
            "times as long",
        ),
        ({"normalizer": sequence("normalizers", *[LOWER] * 1_000)}, "normalizer has 1,001 steps"),
        ({"normalizer": replace({"String": "a" * 20_000}, "b")}, "texts of 20,001 characters"),
        ({"normalizer": sequence("normalizers", table("a"), table("a"))}, "more than one precompiled table"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 1_000}}, "adds more than 64 characters"),
        ({"normalizer": table("a" * 1_000)}, "adds more than 64 characters"),
        ({"post_processor": {"type": "TemplateProcessing", "single": PIECES * 1_001}}, "adds 1,001 tokens"),
    ],
)
def test_what_makes_texts_much_longer_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_growth(document)


@pytest.mark.parametrize("steps", [[*LIGATURE, {"type": "NFKC"}], [BERT, *CHINESE]])
def test_steps_that_feed_each_other_do_grow_in_the_library(steps: list[dict[str, Any]]) -> None:
    from tokenizers import Tokenizer

    made = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
    tokenizer = Tokenizer.from_str(json.dumps({**made, "normalizer": sequence("normalizers", *steps * 6)}))
    assert len(tokenizer.normalizer.normalize_str("fi 中")) > 8 * len("fi 中")


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
