"""Encrypted content: decryption returns it unchanged with the same key, and fails otherwise."""

from __future__ import annotations

import base64
import zlib

import pytest

from greenroom.http.answering.sealing.seal import KEY_BYTES, MAX_SEALED, Seal
from greenroom.schemas.problems import ProblemError

SEAL = Seal(bytes(range(KEY_BYTES)))
FIELD = "input[3].encrypted_content"


@pytest.mark.parametrize(
    "text", ["", "a thought", "Grüße, 世界 \x00 \u2028", "\ud800 alone", "long " * 100_000]
)
def test_a_sealed_text_opens_as_it_was(text: str) -> None:
    sealed = SEAL.seal(text)
    assert sealed.isascii()
    assert SEAL.open(sealed, FIELD) == text


def test_who_reads_an_answer_twice_reads_the_same() -> None:
    assert SEAL.seal("a thought") == Seal(bytes(range(KEY_BYTES))).seal("a thought")


def test_a_sealed_text_cannot_be_read() -> None:
    sealed = SEAL.seal("the password is swordfish")
    content = base64.urlsafe_b64decode(sealed.removeprefix("gr1_"))
    assert b"swordfish" not in content
    with pytest.raises(zlib.error):
        zlib.decompress(content[16:])


def refused(sealed: str, seal: Seal = SEAL) -> ProblemError:
    with pytest.raises(ProblemError) as error:
        seal.open(sealed, FIELD)
    assert error.value.problem.status == 400
    assert error.value.problem.param == FIELD
    return error.value


def test_every_changed_character_is_noticed() -> None:
    sealed = SEAL.seal("summary")
    # The last character of base64 has unused bits.
    for index in range(len(sealed) - 3):
        other = "A" if sealed[index] != "A" else "B"
        refused(sealed[:index] + other + sealed[index + 1 :])


@pytest.mark.parametrize(
    "nonsense", ["", "gr1_", "gr1_é", "gr1_AAAA", "gr1_%%%%", "gAAAA", "\ud800", "gr1_" + "A" * 1_000]
)
def test_nonsense_is_refused_by_name(nonsense: str) -> None:
    assert refused(nonsense).problem.code == "invalid_encrypted_content"


def test_half_of_it_and_another_key_are_refused() -> None:
    sealed = SEAL.seal("summary" * 100)
    refused(sealed[: len(sealed) // 2])
    refused(sealed, seal=Seal(bytes(KEY_BYTES)))


def test_more_than_may_be_sealed_is_not_even_decoded() -> None:
    assert refused("gr1_" + "A" * MAX_SEALED).problem.code == "string_above_max_length"
