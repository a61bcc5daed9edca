"""Answers of a tiny vision model by Greenroom and by mlx-vlm to the same conversations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter, open_engine
from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.vision.vision_language_model import scale_prompts
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.vision.own_fields import OwnFields
from greenroom.tests.support.engines.vision_adapters import asking, message, picture, png
from greenroom.tests.support.engines.vision_engines import VisionDriver, library

TOKENS = 12
"""Tokens of each answer."""

_SIZES = ((96, 64), (128, 128), (96, 64))

Chat = Sequence[str | int]
"""Texts, and pictures by their number."""

TEXT: Chat = ("def read(self, size=-1): what does it return, and why?",)
ONE: Chat = ("Look at ", 0, " what is it, and why?")
OTHER: Chat = ("Look at ", 1, " what is it, and why?")
TWO: Chat = ("Compare ", 2, " with ", 0, " what differs, and why?")
LONG: Chat = (" ".join(f"def part_{i}(self): return {i} * self.size" for i in range(20)), " what is it?")
"""A text longer than the sliding windows of the tiny models that write about texts alone."""
UNLIKE: Chat = ("Compare ", 2, " with ", 1, " what differs, and why?")
"""Two pictures of different sizes. Some mlx-vlm processors pad them to one size, which changes the answer."""


@attrs.frozen
class Comparison:
    """The result of comparing one architecture.

    Args:
        verdict: One of `VERDICTS`.
        reason: One sentence of explanation, or empty.
    """

    verdict: str
    reason: str = ""


EQUAL, REFUSED, LIBRARY_FAILS, NOT_MADE = "equal", "refused", "mlx-vlm fails", "no tiny model"
WRONG, BROKEN, NOT_RUN = "WRONG", "BROKEN", "not run"
VERDICTS = (EQUAL, REFUSED, LIBRARY_FAILS, NOT_MADE, WRONG, BROKEN, NOT_RUN)
_LENGTH = 180
_REPEATS = 6
"""Further answers of mlx-vlm where it differs: some models of it answer one prompt in several ways."""


def compare(folder: Path, own: OwnFields) -> Comparison:
    """Compare Greenroom's answers with mlx-vlm's.

    Args:
        own: Fields that the folder's model was made with.
    """
    sees = detect(folder).model_type == "vision"
    least, most = (0 if own.writes_alone else 1), (own.images if sees else 0)
    asked = (TEXT, ONE, OTHER, TWO, UNLIKE) if sees else (TEXT, LONG)
    chats = [chat for chat in asked if least <= _pictures(chat) <= most]
    adapter = _open(folder)
    try:
        wanted = [_by_library(folder, own, chat) for chat in chats]
    except Exception as error:  # foreign model code may raise anything
        return Comparison(LIBRARY_FAILS, f"{type(error).__name__}: {_short(error)}")
    if isinstance(adapter, str):
        return Comparison(REFUSED, adapter)
    driver = VisionDriver(folder, adapter=adapter)
    for number, chat in enumerate(chats):
        driver.submit_chat(attrs.evolve(_request(chat), id=str(number)))
    driver.run()
    failed = [
        event.problem for events in driver.events.values() for event in events if isinstance(event, Failed)
    ]
    if failed:
        return Comparison(BROKEN, _short(f"{failed[0].status}: {failed[0].detail}"))
    varies = False
    for chat, written, right in zip(chats, driver.tokens, wanted, strict=True):
        if _cut(written) == _cut(right):
            continue
        if chat is UNLIKE:
            return Comparison(EQUAL, "but for two pictures of unlike sizes: each is computed by itself here")
        others = [_cut(right), *(_cut(_by_library(folder, own, chat)) for _ in range(_REPEATS))]
        if _cut(written) not in others and not _varies(folder, adapter, chat, others):
            return Comparison(WRONG, f"{len(_cut(written))} tokens differ from mlx-vlm's: {chat}")
        varies = True
    if varies:
        return Comparison(EQUAL, "one prompt is answered in several ways, by mlx-vlm too")
    if own.mend:
        return Comparison(EQUAL, own.mend)
    if not sees:
        return Comparison(EQUAL, "it writes about texts alone")
    differ = wanted[chats.index(ONE)] != wanted[chats.index(OTHER)]
    return Comparison(
        EQUAL, "" if differ else "the answer does not depend on the picture, which proves little"
    )


def _varies(folder: Path, adapter: Adapter, chat: Chat, others: list[Any]) -> bool:
    """Return whether an answer unlike mlx-vlm's was one of several, of which others are mlx-vlm's."""
    ours = []
    for _ in range(_REPEATS):
        driver = VisionDriver(folder, adapter=adapter)
        driver.submit_chat(attrs.evolve(_request(chat), id="0"))
        driver.run()
        ours.append(_cut(driver.tokens[0]))
    return any(each in others for each in ours)


def refusal(folder: Path) -> Comparison:
    """Return the result for a model that only Greenroom was asked to open, since mlx-vlm cannot."""
    opened = _open(folder)
    assert isinstance(opened, str), "Greenroom opens a model that mlx-vlm cannot make"
    return Comparison(REFUSED, opened)


def _open(folder: Path) -> Adapter | str:
    """Open a model as the server does and close it; return its adapter, or the reason of a refusal."""
    try:
        model = ModelFolder(folder.name, folder, detect(folder))
        adapter = open_adapter(model, Settings(), "")
        open_engine(model, Settings(), lambda _: None, lambda: False, MemoryAccount(), adapter).close()
    except ProblemError as error:
        return _short(error.problem.detail).replace(f"The model '{folder.name}' could not be loaded: ", "")
    assert isinstance(adapter, Adapter)
    return adapter


def _pictures(chat: Chat) -> int:
    return sum(isinstance(part, int) for part in chat)


def _request(chat: Chat) -> Any:
    parts = [part if isinstance(part, str) else png(*_SIZES[part], part + 1) for part in chat]
    return asking([message(*parts)], {"max_tokens": TOKENS, "temperature": 0.0})


def _by_library(folder: Path, own: OwnFields, chat: Chat) -> list[int]:
    from mlx_vlm.generate import stream_generate

    model, processor = library(folder)
    scale_prompts(model)
    content = [
        {"type": "image"} if isinstance(part, int) else {"type": "text", "text": part} for part in chat
    ]
    tokenizer = getattr(processor, "tokenizer", processor)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    if any(isinstance(part, int) for part in chat):
        text = text.removeprefix(own.beginning) + ("\n" if own.cuts_last else "")
    images = [picture(*_SIZES[part], part + 1) for part in chat if isinstance(part, int)]
    stream: Any = stream_generate
    answer = stream(model, processor, text, image=images or None, max_tokens=TOKENS, temperature=0.0)
    return [response.token for response in answer if response.token is not None][:TOKENS]


def _cut(tokens: Sequence[int]) -> Sequence[int]:
    """Return the tokens before the first end token, which mlx-vlm may report twice."""
    end = tokens.index(2) if 2 in tokens else len(tokens)
    return tokens[:end]


def _short(reason: object) -> str:
    line = " ".join(str(reason).split())
    return line if len(line) <= _LENGTH else line[: _LENGTH - 1] + "…"
