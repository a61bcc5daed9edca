"""The vocabulary given to llguidance, and the names shown to clients, equal what its own support reads."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from greenroom.engine.grammar import c_interface
from greenroom.engine.grammar.c_interface import TokenTrie
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.tokenizer.detokenizer import TokenNames
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.requests import Constraint, RegexFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.models.tiny_models import TOKENIZER


def byte_level() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


def with_added_tokens() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_tokens(["two words", "<plain>", "\n\n"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "a", "b", "▁a", "▁ab", "ab", "é", "Hello", "▁Hello", "Ġ", "Ċ", "▁Café"]
    vocabulary = {name: ident for ident, name in enumerate(names)}
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    model = models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>")])
    return tokenizer


def added_spaces() -> Tokenizer:
    """Return a tokenizer with Gemma's kind of added tokens: runs of spaces and of line ends."""
    tokenizer = byte_fallback()
    texts = ("▁▁▁", "\n\n\n", "<unused0>")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in texts])
    return tokenizer


def with_a_gap() -> Tokenizer:
    """Return a tokenizer like Phi-4-mini's, whose last tokens have ids behind a gap."""
    state = json.loads(byte_level().to_str())
    vocabulary = state["model"]["vocab"]
    behind = 40 + max([*vocabulary.values(), *(token["id"] for token in state["added_tokens"])])
    vocabulary |= {"<|late|>": behind, "Ġlate": behind + 1}
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(["<|late|>"])
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, with_added_tokens, byte_fallback, added_spaces])
def test_tokens_are_read_as_llguidance_reads_them(make: Callable[[], Tokenizer]) -> None:
    import llguidance

    tokenizer = make()
    known = GrammarTokenizer(tokenizer, [2])
    theirs = llguidance.LLTokenizer(tokenizer.to_str(), eos_token=[2])
    assert known.size == theirs.vocab_size
    names = TokenNames(TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=tokenizer)))
    for ident, text in enumerate(known.token_bytes):
        assert names.look_up(ident).bytes == text
        if not text.startswith(b"\xff"):  # which is how llguidance marks special tokens
            assert theirs.decode_bytes([ident]) == text
            assert theirs.is_special_token(ident) == (known.special(text.decode(errors="replace")) == ident)
    for written in ("\n</think>\n\n", "Hello <|im_end|> x", "a b", "éß\n\n"):
        assert known.encode(written) == tuple(theirs.tokenize_str(written, parse_special=True))


def test_a_token_behind_a_gap_is_text_and_may_end_an_answer() -> None:
    tokenizer = with_a_gap()
    special, late = (tokenizer.get_vocab()[name] for name in ("<|late|>", "Ġlate"))
    assert special > tokenizer.get_vocab_size(with_added_tokens=True)
    matcher = GrammarCompiler(GrammarTokenizer(tokenizer, [special])).compile(
        Constraint(RegexFormat(" late"))
    )
    assert matcher is not None
    for ident in (late, special):
        mask = matcher.mask()
        assert mask is not None
        assert mask.allows(ident)
        matcher.accept_token(ident)
    assert matcher.is_terminated
    chat = ChatTokenizer(TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=tokenizer)), Path())
    assert [chat.token_names.look_up(ident).text for ident in (special, late)] == ["<|late|>", " late"]
    assert special < chat.vocab_size


def test_letters_of_byte_level_names_are_letters_in_a_vocabulary_of_sentence_pieces() -> None:
    tokenizer = byte_fallback()
    names = TokenNames(TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=tokenizer)))
    vocabulary = tokenizer.get_vocab()
    shown = [names.look_up(vocabulary[name]) for name in ("▁Café", "é", "Ġ", "Ċ", "▁", "<0xE9>")]
    assert [token.text for token in shown] == [" Café", "é", "Ġ", "Ċ", " ", "\ufffd"]
    assert shown[0].bytes == " Café".encode()
    assert shown[-1].bytes == b"\xe9"


def test_a_tokenizer_of_another_kind_is_named() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ProblemError, match="WordPiece"):
        GrammarTokenizer(tokenizer, [0])


def test_other_threads_run_while_a_large_vocabulary_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    tokens = [bytes([byte]) for byte in range(255)]
    tokens += [chance.randbytes(chance.randint(2, 9)).replace(b"\xff", b"x") for _ in range(60_000)]
    done, turns, during = threading.Event(), 0, 0
    library = c_interface._library()
    new_tokenizer = library.llg_new_tokenizer_v2

    def counted(*arguments: Any) -> Any:
        nonlocal during
        before = turns
        made = new_tokenizer(*arguments)
        during = turns - before
        return made

    monkeypatch.setattr(library, "llg_new_tokenizer_v2", counted)

    def read() -> None:
        TokenTrie(tokens, set(), [0])
        done.set()

    thread = threading.Thread(target=read)
    thread.start()
    while not done.wait(1e-4):
        turns += 1
    thread.join()
    assert during > 10  # some hundreds; where the GIL is held, a few around the call
