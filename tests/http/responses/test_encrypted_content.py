"""Encrypted content: decryption returns it unchanged with the same key, and fails otherwise."""

from __future__ import annotations

import base64
import zlib

import pytest

from greenroom.http.responses.compaction import KEY_BYTES, ContentCipher
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire.responses_items import MAX_ENCRYPTED_CONTENT

CIPHER = ContentCipher(bytes(range(KEY_BYTES)))
FIELD = "input[3].encrypted_content"


@pytest.mark.parametrize(
    "text", ["", "a thought", "Grüße, 世界 \x00 \u2028", "\ud800 alone", "long " * 100_000]
)
def test_an_encrypted_text_decrypts_as_it_was(text: str) -> None:
    encrypted = CIPHER.encrypt(text)
    assert encrypted.isascii()
    assert CIPHER.decrypt(encrypted, FIELD) == text


def test_a_text_of_another_owner_does_not_decrypt() -> None:
    key = bytes(range(KEY_BYTES))
    alice, bob = ContentCipher(key, "key_alice"), ContentCipher(key, "key_bob")
    encrypted = alice.encrypt("a thought")
    assert alice.decrypt(encrypted, FIELD) == "a thought"
    for other in (bob, CIPHER):
        with pytest.raises(ProblemError) as refused:
            other.decrypt(encrypted, FIELD)
        assert (refused.value.problem.status, refused.value.problem.param) == (400, FIELD)
    with pytest.raises(ProblemError):
        bob.decrypt(CIPHER.encrypt("a thought"), FIELD)


def test_who_reads_an_answer_twice_reads_the_same() -> None:
    assert CIPHER.encrypt("a thought") == ContentCipher(bytes(range(KEY_BYTES))).encrypt("a thought")


def test_an_encrypted_text_cannot_be_read() -> None:
    encrypted = CIPHER.encrypt("the password is swordfish")
    content = base64.urlsafe_b64decode(encrypted.removeprefix("gr1_"))
    assert b"swordfish" not in content
    with pytest.raises(zlib.error):
        zlib.decompress(content[16:])


def refused(encrypted: str, cipher: ContentCipher = CIPHER) -> ProblemError:
    with pytest.raises(ProblemError) as error:
        cipher.decrypt(encrypted, FIELD)
    assert error.value.problem.status == 400
    assert error.value.problem.param == FIELD
    return error.value


def test_every_changed_character_is_noticed() -> None:
    encrypted = CIPHER.encrypt("summary")
    # The last character of base64 has unused bits.
    for index in range(len(encrypted) - 3):
        other = "A" if encrypted[index] != "A" else "B"
        refused(encrypted[:index] + other + encrypted[index + 1 :])


@pytest.mark.parametrize(
    "nonsense", ["", "gr1_", "gr1_é", "gr1_AAAA", "gr1_%%%%", "gAAAA", "\ud800", "gr1_" + "A" * 1_000]
)
def test_nonsense_is_refused_by_name(nonsense: str) -> None:
    assert refused(nonsense).problem.code == "invalid_encrypted_content"


def test_half_of_it_and_another_key_are_refused() -> None:
    encrypted = CIPHER.encrypt("summary" * 100)
    refused(encrypted[: len(encrypted) // 2])
    refused(encrypted, cipher=ContentCipher(bytes(KEY_BYTES)))


def test_more_than_may_be_encrypted_is_not_even_decoded() -> None:
    assert refused("gr1_" + "A" * MAX_ENCRYPTED_CONTENT).problem.code == "string_above_max_length"


@pytest.mark.parametrize("text", ["a" * 101, "é" * 51, "世" * 34], ids=["ascii", "two bytes", "three bytes"])
def test_a_text_that_is_too_long_is_refused_and_never_cut(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.http.responses.compaction.MAX_DECRYPTED", 100)
    assert refused(CIPHER.encrypt(text)).problem.code == "string_above_max_length"
    assert CIPHER.decrypt(CIPHER.encrypt("é" * 50), FIELD) == "é" * 50
