"""Protocol-independent requests to models of any type; the type decides the class of `input`."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject, Message, ReasoningSettings, Tool, ToolChoice
from greenroom.schemas.model_key import ModelKey

Verbosity = Literal["low", "medium", "high"]
"""The verbosity of answers."""

VERBOSITIES: tuple[Verbosity, ...] = ("low", "medium", "high")


@attrs.frozen
class ChatInput:
    """A conversation, to be rendered with the model's chat template.

    Args:
        template_options: Extra variables for the template, e.g. `{"enable_thinking": False}`; they override
            `thinking`.
        continue_final_message: True if the last message is the beginning of an assistant's answer to
            continue.
        parallel_tool_calls: True if an answer may contain more than one tool call.
        verbosity: Verbosity of the answer; `medium` is the model's default.
        prediction: Text that the client expects as the answer; its tokens count as rejected drafts.
        system_prompt: The operator's system prompt at the conversation's start, empty if there was none; None
            for the current setting. It applies to conversations without a system message.

    Example:
        question = Message("user", (TextPart("What is Greenroom?"),))
        with generate(system, ChatInput((question,)), max_tokens=200) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        print(text, end="", flush=True)
                    case Finished(reason, usage):
                        print("", reason, usage.generated)
                    case Failed(problem):
                        raise ProblemError(problem)
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_options: JsonObject = attrs.field(factory=dict)
    continue_final_message: bool = False
    parallel_tool_calls: bool = True
    thinking: ReasoningSettings = ReasoningSettings()
    verbosity: Verbosity = "medium"
    prediction: str = attrs.field(default="", repr=False)
    system_prompt: str | None = attrs.field(default=None, repr=False)

    def operators_prompt(self, default: str) -> str | None:
        """Return the operator's prompt before the messages, empty for none; None if they have their own."""
        if any(message.role == "system" and not message.is_note for message in self.messages):
            return None
        return default if self.system_prompt is None else self.system_prompt


@attrs.frozen
class RawInput:
    """Text or token ids to continue unchanged: no template, no parsing.

    Args:
        suffix: Text after the answer, for models trained to fill in the middle.
        begins: True to add the model's initial special tokens to text.
        echo: True if the client requests the prompt back (`PromptText`).
        scored: Maximum length of a prompt whose tokens' log-probabilities are requested with `echo`; None if
            they are not requested.
        answered: False to generate nothing.
        param: Request field of the prompt, for errors.
    """

    prompt: str | tuple[int, ...]
    suffix: str = ""
    begins: bool = True
    echo: bool = False
    scored: int | None = None
    answered: bool = True
    param: str = attrs.field(default="prompt", kw_only=True, eq=False)


@attrs.frozen
class EmbeddingInput:
    """Texts to embed; each yields one vector.

    Args:
        texts: Texts, or token ids that are used unchanged.
        dimensions: Length of the vectors; None for the model's full length.
        input_type: Purpose of the texts, named as in the model's own prompts (`query`, `document`, …).
        instruction: Retrieval task, for models that accept one; overrides `input_type`.
        truncate: True to truncate a text that is too long instead of rejecting it.
        param: Request field of the texts, for errors.

    Example:
        import numpy

        with generate(system, EmbeddingInput(("rain", "snow"))) as events:
            async for event in events:
                match event:
                    case Vector(values, index):
                        print(index, numpy.frombuffer(values, "<f4"))
                    case Failed(problem):
                        raise ProblemError(problem)
    """

    texts: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    input_type: str | None = None
    instruction: str | None = None
    truncate: bool = False
    param: str = attrs.field(default="input", kw_only=True, eq=False)


@attrs.frozen
class ScoreInput:
    """Pairs of texts to score by how well the second answers the first.

    Args:
        instruction: Description of a relevant document, for models that accept one.
        truncate: True to truncate a document that is too long instead of rejecting it.
        document_tokens: Maximum number of tokens of a document that are read; None for all that fit.
        param: Request field of the documents, for errors; `query_param` likewise for the query.

    Example:
        documents = ("It rains a lot in autumn.", "The cat sleeps.")
        pairs = tuple(("What is the weather like?", text) for text in documents)
        with generate(system, ScoreInput(pairs)) as events:
            async for event in events:
                match event:
                    case Score(value, index):
                        print(f"{value:.2f} {documents[index]}")
                    case Failed(problem):
                        raise ProblemError(problem)
    """

    pairs: tuple[tuple[str, str], ...]
    instruction: str | None = None
    truncate: bool = True
    document_tokens: int | None = None
    param: str = attrs.field(default="documents", kw_only=True, eq=False)
    query_param: str = attrs.field(default="query", kw_only=True, eq=False)


@attrs.frozen
class SpeechInput:
    """Text to convert to speech.

    Args:
        voice: Voice of the model; None for its default.
        speed: Speech rate; 1 is the model's own.
        instructions: Style of speech, for models that accept instructions.
        language: ISO 639-1 code of the text's language; None lets the model decide.
        reference: Path of a spooled audio file with a voice to imitate.
        reference_text: Transcript of `reference`.

    Example:
        import wave

        speech, hertz = b"", 0
        with generate(system, SpeechInput("Hello!")) as events:
            async for event in events:
                match event:
                    case AudioChunk(samples, rate):
                        speech, hertz = speech + samples, rate
                    case Failed(problem):
                        raise ProblemError(problem)
        with wave.open("hello.wav", "wb") as file:
            file.setparams((1, 2, hertz, 0, "NONE", ""))
            file.writeframes(speech)
    """

    text: str
    voice: str | None = None
    speed: float = 1.0
    instructions: str = ""
    language: str | None = None
    reference: str | None = None
    reference_text: str | None = None


@attrs.frozen
class TranscriptionInput:
    """A recording to transcribe.

    Args:
        file: Path of the spooled audio file, in any container; it outlives the request.
        task: Task of the model; `translate` produces English from any language.
        language: ISO 639-1 code of the spoken language; None lets the model detect it.
        prompt: Preceding text, whose style and names the model continues.
        word_timestamps: True to report timestamps of words too.
        temperature: Sampling temperature; None starts at 0 and raises it where decoding fails.

    Example:
        with generate(system, TranscriptionInput("talk.wav")) as events:
            async for event in events:
                match event:
                    case Segment(text, start, end):
                        print(f"{start:.1f} to {end:.1f} s: {text}")
                    case Failed(problem):
                        raise ProblemError(problem)
    """

    file: str
    task: Literal["transcribe", "translate"] = "transcribe"
    language: str | None = None
    prompt: str = ""
    word_timestamps: bool = False
    temperature: float | None = None


RequestInput = ChatInput | RawInput | EmbeddingInput | ScoreInput | SpeechInput | TranscriptionInput
"""The input of a request; a model type with another kind of input adds a class here."""


Overflow = Literal["refuse", "drop_oldest"]
"""Handling of a conversation that exceeds the context: reject it, or drop its oldest whole turns."""


@attrs.frozen
class KeepAlive:
    """A request's wish for how long its model stays in memory; it cuts nobody else's time.

    It never pins a model, and changes nothing for one that the operator has pinned.

    Args:
        seconds: Seconds after the last request; 0 to unload when the last lease ends, None for no limit.
    """

    seconds: float | None


@attrs.frozen
class AppliedAdapter:
    """The LoRA adapter that a request's rows apply to the base model.

    Args:
        name: Name under which it is listed.
        folder: Folder of its files.
        scale: Factor of its effect, in addition to its own scale.
    """

    name: str
    folder: str
    scale: float = 1.0


_IDS = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"


@attrs.frozen
class TraceContext:
    """A place in a trace (W3C Trace Context).

    Args:
        traceparent: Ids of the trace and of the span above it, and flags.
        tracestate: What systems of tracing keep there, handed on as it is; may be empty.

    Raises:
        ValueError: `traceparent` is none.
    """

    # Only later versions than 00 may have further fields.
    traceparent: str = attrs.field(
        validator=attrs.validators.matches_re(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(-[!-~]{{1,200}})?")
    )
    tracestate: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The headers of a request, or the members of `_meta`, that hand it on."""
        state = {"tracestate": self.tracestate} if self.tracestate else {}
        return {"traceparent": self.traceparent, **state}


@attrs.frozen
class InferenceRequest:
    """A request to a model.

    Args:
        id: Request id, also found in the logs and in `x-request-id`.
        overrides: Parameters set by the client, already validated.
        response_format: Required format of the visible answer.
        client: Identity for fair scheduling: an address, followed by `#`, a key, and `@` and a program, as
            far as they are known; may be empty.
        overflow: Handling of a conversation that is too long; other input is always rejected.
        adapter: Name of the LoRA adapter to apply; None for that of the model's name, or for none.
        adapter_scale: Factor of the effect of `adapter`.
        applied: Adapter that the pool has found for the request; None for the base model alone.
        keep_alive: Wish for how long the model stays in memory afterwards; None for the operator's setting.
        priority: Priority, at least 0: each step puts it further behind other requests
            (`greenroom.schemas.messages.requests`).
        key_priority: Priority that the operator has given the caller's key; it is added to `priority`.
        allowed: Names and patterns of the models that the caller may use; empty for all.
        may_download: True if it may bring a model of the hub that nobody has named before.
        stays: Reason why it must not leave this machine; empty if it may.
        chosen: Reasons for which the pool has chosen its model among those of a route; empty without one.
        trace: Its place in a trace; None without one.
        cache_salt: Name of those with whom it shares computed prefixes; empty for all.
        defaults: Parameters of the profile that the client named, for those that it did not set.
        explained: True if the client asks what its request cost and why; the log tells it of every request.
    """

    id: str
    key: ModelKey
    input: RequestInput
    overrides: Overrides = attrs.field(factory=dict)
    response_format: ResponseFormat | None = attrs.field(default=None, kw_only=True)
    overflow: Overflow = attrs.field(default="refuse", kw_only=True)
    keep_alive: KeepAlive | None = attrs.field(default=None, kw_only=True)
    priority: int = attrs.field(default=0, kw_only=True)
    key_priority: int = attrs.field(default=0, kw_only=True)
    allowed: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    may_download: bool = attrs.field(default=True, kw_only=True)
    stays: str = attrs.field(default="", kw_only=True)
    chosen: str = attrs.field(default="", kw_only=True)
    trace: TraceContext | None = attrs.field(default=None, kw_only=True)
    cache_salt: str = attrs.field(default="", kw_only=True)
    client: str = ""
    adapter: str | None = attrs.field(default=None, kw_only=True)
    adapter_scale: float = attrs.field(default=1.0, kw_only=True)
    applied: AppliedAdapter | None = attrs.field(default=None, kw_only=True)
    defaults: Overrides = attrs.field(factory=dict, kw_only=True)
    explained: bool = attrs.field(default=False, kw_only=True)

    @property
    def choices(self) -> int:
        return int(self.overrides.get("n", 1))


# The priorities of requests: each step lets a request wait behind those that arrive a while later.
#
# The numbers are vLLM's: a lower one is served earlier, and 0 is the default. No client may ask for less,
# but the operator may give a key less: its requests go before others that arrived a while earlier.

FLEX = 1
"""Priority of OpenAI's `service_tier: "flex"`."""

BACKGROUND = 1
"""Lowest number for a response that nobody waits for."""

PROBE = 10
"""Priority of the server's own questions to a model; higher numbers wait no longer than this one.

A key's requests go at most as many steps before others, so that nobody starves.
"""

MAX_PRIORITY = 2**31 - 1
"""Largest number that is accepted, a 32-bit integer as in vLLM's clients."""

AGEING = 60.0
"""Seconds of waiting that make up for one step of priority."""


def turn_of(arrival: float, priority: int) -> float:
    """Return the time by which a request is ordered among others: its arrival, put off by its priority.

    It never changes, so a request that waits is passed by newer ones for a limited time only.

    Args:
        arrival: Time of its arrival in seconds, by any clock.
    """
    return arrival + AGEING * max(-PROBE, min(priority, PROBE))


@attrs.frozen
class JsonObjectFormat:
    """The format of any JSON object (`response_format: {"type": "json_object"}`)."""

    param: str = "response_format"


@attrs.frozen
class JsonSchemaFormat:
    """The format of JSON that validates against a schema (`response_format: {"type": "json_schema"}`).

    Args:
        schema: JSON Schema, draft 2020-12; notes/structured-output.md lists the supported keywords.
        name: Name given by the client, for logs only.
        strict: Flag sent by the client; the schema is enforced either way.
        param: Request field of the schema, for errors; likewise in the other formats.
    """

    schema: Any
    name: str = ""
    strict: bool = True
    param: str = "response_format.json_schema.schema"


@attrs.frozen
class RegexFormat:
    """The format of text that matches a regular expression as a whole."""

    pattern: str
    param: str = "response_format.pattern"


@attrs.frozen
class ChoiceFormat:
    """The format of text that equals one of the choices."""

    choices: tuple[str, ...]
    param: str = "response_format.choices"


@attrs.frozen
class LarkFormat:
    """The format of text in a context-free grammar: llguidance's dialect of Lark, start rule `start`."""

    grammar: str
    param: str = "response_format.grammar"


ResponseFormat = JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat | LarkFormat


@attrs.frozen
class CallConstraint:
    """The constraint on tool calls.

    Under `auto`, only the contents of a call are constrained, and only if some tool is strict, or all are
    held. `required` and `named` force at least one call.

    Args:
        call_format: Id of the tool-call parser for the answer.
        parallel: True if more than one call is allowed.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    call_format: str
    parallel: bool = True


@attrs.frozen
class ReasoningConstraint:
    """The markers of reasoning, and its maximum length.

    Args:
        start: Marker that opens reasoning, e.g. `<think>`.
        opened: True if the prompt ends inside reasoning.
        budget: Maximum number of reasoning tokens before it is closed; None for no limit.
        forced_end: Text that closes reasoning at the budget; by default the end marker on its own line.
        answer_starts: Markers, one of which may precede the visible answer.
    """

    start: str
    end: str
    opened: bool = False
    budget: int | None = None
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()


@attrs.frozen
class Constraint:
    """Constraints on a request's answer: the format of its text, its tool calls and its reasoning.

    Args:
        response_format: Required format of the visible answer.
        calls: Constraint on tool calls. With `auto` and a response format, the answer is either.
        reasoning: Constraint on reasoning; None if the model does not reason in this request.
        cache_salt: Name of those who share the compiled constraint; empty for all.
    """

    response_format: ResponseFormat | None = None
    calls: CallConstraint | None = None
    reasoning: ReasoningConstraint | None = None
    cache_salt: str = ""
