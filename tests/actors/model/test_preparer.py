"""Preparation in cooperative steps: other requests go on between the steps of a large one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

import attrs
import numpy as np
import pytest

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.core.worker_thread import Heartbeat
from greenroom.actors.engines.engine_protocol import CooperativeAdapter, CooperativeRenderer
from greenroom.actors.engines.engines import Engines, ModelFiles, OpenedModel
from greenroom.actors.model.preparer import PromptPrepared, TokenizerLoop, TokenizerReport
from greenroom.actors.model.running_requests import Preparation
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
)
from greenroom.schemas.messages.prepared_input import PreparedInput, PreparedPrompt
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RequestInput,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import PromptContents
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.hostile import documents, pngs, sounds
from greenroom.tests.support.media.hanging_recordings import hanging_decoders
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.texts.random_texts import random_texts

T = TypeVar("T")
TEXTS = random_texts(700, longest=20)


@attrs.define
class Interrupted:
    """A real adapter that calls `happens` after the first preparation step of the first request."""

    adapter: CooperativeAdapter
    happens: Callable[[], object]
    steps: int = 0

    def prepare_in_steps(self, request: InferenceRequest) -> Generator[object, None, PreparedInput]:
        return (yield from self._interrupted(self.adapter.prepare_in_steps(request)))

    def _interrupted(self, steps: Generator[object, None, T]) -> Generator[object, None, T]:
        while True:
            try:
                paused = next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            self.steps += 1
            if self.steps == 1:
                self.happens()
            yield paused

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        return self.adapter.prepare_input(request)

    def render_in_steps(self, request: InferenceRequest) -> Generator[object, None, PromptContents]:
        assert isinstance(self.adapter, CooperativeRenderer)
        return (yield from self._interrupted(self.adapter.render_in_steps(request)))


class InterruptedEngines(Engines):
    """Engines whose adapters are wrapped in `Interrupted`."""

    happens: Callable[[], object]
    adapter: Interrupted

    def open_model(self, files: ModelFiles) -> OpenedModel:
        opened = super().open_model(files)
        assert isinstance(opened.adapter, CooperativeAdapter)
        self.adapter = Interrupted(opened.adapter, self.happens)
        return attrs.evolve(opened, adapter=self.adapter)


class Road:
    """A tokenizer loop that the test runs itself; the request `long` is queued before the loop begins."""

    def __init__(self, folder: Path, asked: RequestInput, *, rendering: bool = False) -> None:
        self.engines = InterruptedEngines(Settings(models=(str(folder),)))
        self.reports: list[TokenizerReport] = []
        self.reported: Callable[[], object] = lambda: None
        self.loop = TokenizerLoop(ModelKey(folder.name), self.engines, self._report)
        self.long = self.put("long", asked, rendering=rendering)

    def _report(self, report: TokenizerReport) -> None:
        self.reports.append(report)
        self.reported()

    def put(self, request_id: str, asked: RequestInput, *, rendering: bool = False) -> ReplyStream[object]:
        replies: ReplyStream[object] = ReplyStream()
        request = InferenceRequest(request_id, ModelKey("m"), asked)
        self.loop.put(Preparation(request, replies.sender, rendering=rendering))
        return replies

    def run(self, happens: Callable[[], object]) -> dict[str, object]:
        """Run the loop to its end; return the results by request id, in order of completion."""
        self.engines.happens = happens
        self.loop.end()
        self.loop.run(Heartbeat())
        done = [report for report in self.reports if isinstance(report, PromptPrepared)]
        return {each.preparation.request.id: each.result for each in done}


ASKED: dict[str, tuple[RequestInput, RequestInput]] = {
    "bert": (EmbeddingInput(TEXTS), EmbeddingInput(("hello",))),
    "bert-rerank": (
        ScoreInput(tuple(("who", text) for text in TEXTS)),
        ScoreInput((("who", "hello"),)),
    ),
}


@pytest.mark.parametrize("kind", ASKED)
def test_a_small_request_is_prepared_between_the_slices_of_a_large_one(
    tiny_encoder: TinyEncoder, kind: str
) -> None:
    large, small = ASKED[kind]
    road = Road(tiny_encoder(kind), large)
    found = road.run(lambda: road.put("short", small))
    assert list(found) == ["short", "long"]
    assert road.engines.adapter.steps > 5
    whole = road.engines.adapter.prepare_input(InferenceRequest("r", ModelKey("m"), large))
    rows = zip(found["long"].rows, whole.rows, strict=True)  # type: ignore[attr-defined]
    assert all(np.array_equal(sliced.tokens, once.tokens) for sliced, once in rows)


@pytest.mark.parametrize("kind", ASKED)
def test_what_nobody_waits_for_any_more_is_left_at_the_next_slice(
    tiny_encoder: TinyEncoder, kind: str
) -> None:
    road = Road(tiny_encoder(kind), ASKED[kind][0])
    assert road.run(road.long.close) == {"long": None}
    assert road.engines.adapter.steps == 1


def _chat(*content: ContentPart) -> ChatInput:
    return ChatInput((Message("user", (*content, TextPart("What is this?"))),))


@pytest.mark.parametrize("rendering", [False, True])
def test_a_chat_is_prepared_while_pages_of_another_are_drawn(
    tiny_vision_model: TinyVisionModel, rendering: bool
) -> None:
    document = DocumentPart(documents.document(2))
    road = Road(tiny_vision_model("qwen2_vl"), _chat(document), rendering=rendering)
    found = road.run(lambda: road.put("short", _chat()))
    assert list(found) == ["short", "long"]
    assert isinstance(found["long"], PromptContents if rendering else PreparedPrompt)


@pytest.mark.parametrize("rendering", [False, True])
def test_nobody_draws_a_document_that_nobody_waits_for(
    tiny_vision_model: TinyVisionModel, rendering: bool
) -> None:
    document = DocumentPart(documents.slow_page())
    road = Road(tiny_vision_model("qwen2_vl"), _chat(document), rendering=rendering)
    assert road.run(road.long.close) == {"long": None}
    assert road.engines.adapter.steps == 1


def test_one_document_does_not_hold_up_the_next(tiny_vision_model: TinyVisionModel) -> None:
    """While a document's pages are rendered, other requests with images go on, even from the same client."""
    road = Road(tiny_vision_model("qwen2_vl"), _chat(DocumentPart(documents.slow_page())))
    road.put("pages", _chat(DocumentPart(documents.document(2))))
    road.put("image", _chat(ImagePart(pngs.png(64, 64))))

    def leave_last() -> None:
        if sum(isinstance(each, PromptPrepared) for each in road.reports) == 2:
            road.long.close()

    road.reported = leave_last
    found = road.run(lambda: None)
    assert set(list(found)[:2]) == {"pages", "image"}
    assert all(isinstance(found[name], PreparedPrompt) for name in ("pages", "image"))
    assert found["long"] is None


def test_a_model_without_prompts_of_its_clients_refuses_to_show_one(
    tiny_encoder: TinyEncoder, tiny_pocket: Path, tiny_whisper: Path
) -> None:
    for folder in (tiny_encoder("bert-rerank"), tiny_pocket, tiny_whisper):
        reports: list[TokenizerReport] = []
        loop = TokenizerLoop(ModelKey(folder.name), Engines(Settings(models=(str(folder),))), reports.append)
        request = InferenceRequest("r", ModelKey("m"), _chat())
        loop.put(Preparation(request, ReplyStream[object]().sender, rendering=True))
        loop.end()
        loop.run(Heartbeat())
        [result] = [report.result for report in reports if isinstance(report, PromptPrepared)]
        assert isinstance(result, Problem)
        assert (result.status, result.code) == (400, "unsupported_model_type")


Recorded = tuple[Path, RequestInput, RequestInput]


@pytest.fixture(params=["a chat", "a transcription", "a voice"])
def recorded(
    request: pytest.FixtureRequest, tiny_vision_model: TinyVisionModel, tiny_whisper: Path, tmp_path: Path
) -> Recorded:
    """Return a model, a request whose audio must be decoded, and a request without audio."""
    file = tmp_path / "recording.wav"
    file.write_bytes(sounds.tone(2.0))
    match request.param:
        case "a chat":
            return tiny_vision_model("gemma4"), _chat(AudioPart(file.read_bytes())), _chat()
        case "a transcription":
            asked = TranscriptionInput(str(file))
            return tiny_whisper, asked, attrs.evolve(asked, language="of nobody")
        case _:
            folder = make_tiny_pocket(tmp_path / "clone", clones=True)
            return folder, SpeechInput("Hello.", reference=str(file)), SpeechInput("Hello.")


def test_others_go_on_while_a_decoder_hangs_until_its_client_leaves(recorded: Recorded) -> None:
    folder, asked, short = recorded
    road = Road(folder, asked)
    road.put("short", short)
    road.reported = lambda: road.long.close() if isinstance(road.reports[-1], PromptPrepared) else None
    with hanging_decoders():
        found = road.run(lambda: None)
    assert list(found) == ["short", "long"]
    assert found["long"] is None
