"""Prompts that precede the texts to embed and state their purpose, as the model was trained with them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from greenroom.engine.catalog.files.sentence_transformers_config import SentenceTransformersConfig
from greenroom.schemas.problems import invalid

_QUERY = ("query", "search_query", "retrieval.query", "retrieval_query", "web_search_query", "s2p_query")
_DOCUMENT = (
    "document",
    "passage",
    "search_document",
    "retrieval.passage",
    "retrieval_document",
    "corpus",
)
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
    """The prompts of a model.

    Args:
        model: The model's name, for errors.
        prompts: Prompts by name.
        default: Name of the prompt for texts without an input type.
    """

    model: str
    prompts: Mapping[str, str]
    default: str | None = None

    def prompt(self, input_type: str | None, instruction: str | None) -> str:
        """Return the prompt that precedes a text.

        Args:
            input_type: Purpose of the text: the name of a prompt, or of a side of a search.
            instruction: Search task, which replaces the task in a query's prompt.

        Raises:
            ProblemError: 400: the model has no such prompt, or takes no instruction, or none for that text.
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
