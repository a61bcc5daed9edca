"""The adapter of an embedding model: texts in, rows of tokens out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from greenroom.engine.catalog.load_failures import named_failures
from greenroom.engine.catalog.sentence_transformers_config import (
    SentenceTransformersConfig,
    read_sentence_transformers_config,
)
from greenroom.engine.encoding.rows import PreparedRows, Row, TextRows
from greenroom.engine.resources.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest, RawInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.model_protocol import PromptContents

MAX_NUMBERS = 1 << 25
"""Limit of numbers over all vectors of a request: 128 MB, and three times as much as JSON."""


def make_embedding_adapter(
    model: str, record: CapabilityRecord, tokenizer: ChatTokenizer, max_context: int | None = None
) -> EmbeddingAdapter:
    """Return a model's adapter, around its thread's tokenizer. `max_context`: the operator's limit of tokens
    per text, if any. Raises ProblemError (503 `load_failed`): unsupported pooling or layers.
    """
    with named_failures(tokenizer.folder, model):
        files = read_sentence_transformers_config(tokenizer.folder)
    rows = TextRows(tokenizer, min(record.context, max_context or record.context))
    return EmbeddingAdapter(model, record, rows, files, instructions_of(model, files))


class EmbeddingAdapter:
    """Prepares texts for one model, on its tokenizer's thread. `rows`: tokenization of the model's texts;
    `instructions`: the model's prompts, which precede texts.
    """

    def __init__(
        self,
        model: str,
        record: CapabilityRecord,
        rows: TextRows,
        files: SentenceTransformersConfig,
        instructions: Instructions,
    ) -> None:
        self._model = model
        self._kind = record.model_type
        self._rows = rows
        self._files = files
        self._instructions = instructions

    def prepare_input(self, request: InferenceRequest) -> PreparedTexts:
        """Tokenize a request's texts and check its parameters.

        Raises:
            ProblemError: 400 that names the field.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedTexts]:
        """Do the same as `prepare_input` in steps. Raises ProblemError (400) that names the field."""
        asked = request.input
        if not isinstance(asked, EmbeddingInput):
            raise ProblemError(wrong_kind(self._model, self._kind, asked))
        if not asked.texts:
            raise invalid(f"`{asked.param}` is empty: there is nothing to embed.", asked.param)
        width = self._files.width
        if asked.dimensions is not None and not 1 <= asked.dimensions <= width:
            detail = f"`dimensions` is {asked.dimensions}, but the vectors of '{self._model}' have {width}"
            raise invalid(f"{detail}: it must be from 1 to {width}.", "dimensions")
        numbers = len(asked.texts) * (asked.dimensions or width)
        if numbers > MAX_NUMBERS:
            detail = f"`{asked.param}` asks for {numbers} numbers, but an answer has at most {MAX_NUMBERS}"
            raise invalid(f"{detail}: send fewer texts at once, or ask for fewer dimensions.", asked.param)
        rows: list[Row] = []
        for row in self._prepared(asked):
            if row is None:
                yield None
            else:
                rows.append(row)
        return PreparedTexts(tuple(rows), asked.dimensions, param=asked.param)

    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        """Return a text as the model reads it. Raises ProblemError (400) that names the field."""
        if not isinstance(request.input, RawInput):
            raise ProblemError(wrong_kind(self._model, self._kind, request.input))
        return self._rows.inspect(request.input)

    def _prepared(self, asked: EmbeddingInput) -> Iterator[Row | None]:
        prompt = self._instructions.prompt(asked.input_type, asked.instruction)
        instructed = self._rows.tokens_before(prompt) if prompt else 0
        params = _params(asked)
        tokenized = self._rows.tokenize(
            [
                self._written(prompt, self._rows.bounded(text, asked.truncate, param))
                for text, param in zip(asked.texts, params, strict=True)
                if isinstance(text, str)
            ]
        )
        for text, param in zip(asked.texts, params, strict=True):
            if isinstance(text, str):
                while (found := next(tokenized)) is None:
                    yield None
                yield Row(self._rows.fit(found, asked.truncate, param), instructed=instructed)
                continue
            _refuse_instructions(asked, prompt, param)
            tokens = self._rows.checked(text, param)
            yield Row(self._rows.fit(tokens, asked.truncate, param, as_they_are=True))

    def _written(self, prompt: str, text: str) -> str:
        whole = prompt + text
        return whole.lower() if self._files.lower_case else whole


def _params(asked: EmbeddingInput) -> list[str]:
    if len(asked.texts) == 1:
        return [asked.param]
    return [f"{asked.param}[{at}]" for at in range(len(asked.texts))]


def _refuse_instructions(asked: EmbeddingInput, prompt: str, param: str) -> None:
    """Reject an instruction or input type for a text sent as tokens, which no prompt can precede."""
    field = "instruction" if asked.instruction is not None else "input_type"
    if prompt and (asked.instruction, asked.input_type) != (None, None):
        detail = (
            f"`{field}` stands before a text, but `{param}` holds tokens: put it into them, or send text."
        )
        raise invalid(detail, field)


_QUERY = ("query", "search_query", "retrieval.query", "retrieval_query", "web_search_query", "s2p_query")
_DOCUMENT = ("document", "passage", "search_document", "retrieval.passage", "retrieval_document", "corpus")
"""Names that models and clients use for the two sides of a search; the first that a model has is used."""

_INSTRUCTED = (
    re.compile(r"(?P<before>Instruct: ).*(?P<after>\nQuery: ?)", re.DOTALL),
    re.compile(r"(?P<before>task: ).*(?P<after> \| query: )", re.DOTALL),
)
"""Query prompts that contain a task description, which the client's instruction can replace."""

_SEARCH = "Represent this sentence for searching relevant passages: "
_FIND = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_CONVENTIONS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (r"\be5-(small|base|large)|multilingual-e5(?!.*instruct)", {"query": "query: ", "passage": "passage: "}),
    (r"\bnomic-embed-text", {"query": "search_query: ", "document": "search_document: "}),
    (r"\bbge-(small|base|large)-en|\bmxbai-embed", {"query": _SEARCH, "document": ""}),
    (r"\bqwen3-embedding", {"query": _FIND, "document": ""}),
)
"""Prompts by model name, stated by model cards or original files but missing from conversions."""


@attrs.frozen
class Instructions:
    """The prompts of a model. `default`: name of the prompt for texts without an input type."""

    model: str
    prompts: Mapping[str, str]
    default: str | None = None

    def prompt(self, input_type: str | None, instruction: str | None) -> str:
        """Return the prompt that precedes a text.

        Args:
            input_type: Purpose of the text: the name of a prompt, or of a side of a search.
            instruction: Search task, which replaces the task in a query's prompt.

        Raises:
            ProblemError (400): the model has no such prompt, or takes no instruction, or none for that text.
        """
        typed = self.prompts.get(self.default or "", "") if input_type is None else self._typed(input_type)
        if instruction is None:
            return typed
        instructed = self._instructed(instruction)
        if input_type in _DOCUMENT:
            detail = (
                f"`instruction` is for queries, not for texts with `input_type` '{input_type}': leave it out."
            )
            raise invalid(detail, "instruction", "unsupported_parameter")
        return instructed

    def _instructed(self, instruction: str) -> str:
        for pattern in _INSTRUCTED:
            for prompt in self.prompts.values():
                if found := pattern.fullmatch(prompt):
                    return f"{found['before']}{instruction}{found['after']}"
        detail = f"'{self.model}' takes no instruction. {self._known()}"
        raise invalid(detail, "instruction", "unsupported_parameter")

    def _typed(self, input_type: str) -> str:
        if input_type in self.prompts:
            return self.prompts[input_type]
        for names in (_QUERY, _DOCUMENT):
            if input_type in names:  # A model without prompts treats both sides alike.
                return next((self.prompts[name] for name in names if name in self.prompts), "")
        raise invalid(f"'{self.model}' knows no input_type {input_type!r:.80}. {self._known()}", "input_type")

    def _known(self) -> str:
        names = dict.fromkeys((*self.prompts, "query", "document"))
        return f"Its values of `input_type` are: {', '.join(names)}."


def instructions_of(model: str, files: SentenceTransformersConfig) -> Instructions:
    """Return the prompts stated in a model's files, or else those known for its name."""
    if files.prompts:
        return Instructions(model, files.prompts, files.default_prompt)
    named = (prompts for name, prompts in _CONVENTIONS if re.search(name, model, re.IGNORECASE))
    return Instructions(model, next(named, {}))


@attrs.frozen(eq=False)
class PreparedTexts(PreparedRows):
    """One row per text. `dimensions`: width of the returned vectors; None for all."""

    dimensions: int | None = None
