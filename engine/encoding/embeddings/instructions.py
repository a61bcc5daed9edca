"""What a text begins with that is to be embedded: what it is for, in the model's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from greenroom.engine.catalog.files.sentence_files import SentenceFiles
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
"""Names by which models and clients call the two sides of a search; the first that a model has is meant."""

_INSTRUCTED = (
    re.compile(r"(?P<before>Instruct: ).*(?P<after>\nQuery: ?)", re.DOTALL),
    re.compile(r"(?P<before>task: ).*(?P<after> \| query: )", re.DOTALL),
)
"""Prompts of queries in which a task is told that another can take the place of."""

_SEARCH = "Represent this sentence for searching relevant passages: "
_FIND = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_CONVENTIONS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (r"\be5-(small|base|large)|multilingual-e5(?!.*instruct)", {"query": "query: ", "passage": "passage: "}),
    (r"\bnomic-embed-text", {"query": "search_query: ", "document": "search_document: "}),
    (r"\bbge-(small|base|large)-en|\bmxbai-embed", {"query": _SEARCH, "document": ""}),
    (r"\bqwen3-embedding", {"query": _FIND, "document": ""}),
)
"""Prompts that a model's card or first files tell and those of a conversion do not, by the model's name."""


@attrs.frozen
class Instructions:
    """The prompts of a model.

    Args:
        model: What it is called, for errors.
        prompts: By name.
        default: Name of the one for texts of which nothing is told.
    """

    model: str
    prompts: Mapping[str, str]
    default: str | None = None

    def prompt(self, input_type: str | None, instruction: str | None) -> str:
        """Return what a text begins with.

        Args:
            input_type: What the text is for: the name of a prompt, or of a side of a search.
            instruction: What is to be found with it: takes the place of the task in a query's prompt.

        Raises:
            ProblemError: 400: the model knows no such prompt, or takes no instruction, or none for that text.
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
            if input_type in names:  # a model without prompts treats both sides alike
                return next((self.prompts[name] for name in names if name in self.prompts), "")
        raise invalid(f"'{self.model}' knows no input_type {input_type!r:.80}. {self._known()}", "input_type")

    def _known(self) -> str:
        names = dict.fromkeys((*self.prompts, "query", "document"))
        return f"What it knows as `input_type`: {', '.join(names)}."


def instructions_of(model: str, files: SentenceFiles) -> Instructions:
    """Return the prompts that a model's files tell, else those that its name does."""
    if files.prompts:
        return Instructions(model, files.prompts, files.default_prompt)
    named = (prompts for name, prompts in _CONVENTIONS if re.search(name, model, re.IGNORECASE))
    return Instructions(model, next(named, {}))
