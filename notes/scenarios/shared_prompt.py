"""A long system prompt that many requests share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Sample
from greenroom.tests.bench.load_client import ChatMessages, Prompts
from greenroom.tests.bench.scenarios import Scenario
from greenroom.tests.bench.servers import TargetServer

_QUESTION_WORDS = 8


@attrs.frozen
class SharedPrompt(Scenario):
    """A new system prompt with a question, then the same prompt with other questions.

    Args:
        prompt_tokens: Length of the system prompt, in tokens.
        repeats: Number of questions after the first.
        tokens: Longest response, in tokens.
    """

    name: ClassVar[str] = "shared-prompt"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "cold": Metric("first token, new system prompt", "ms", 0),
        "repeated": Metric("first token, repeated (median of the run)", "ms", 1),
        "worst": Metric("first token, repeated (slowest of the run)", "ms", 1),
        "repeated_over_cold": Metric("repeated over cold", "", 3),
        "worst_over_cold": Metric("slowest repeated over cold", "", 3),
        "cached": Metric("cached share of the repeated prompt"),
        "bare": Metric("mlx-lm's bare prefill of the new one", "ms", 0),
        "cold_over_bare": Metric("cold over mlx-lm's bare prefill"),
    }

    prompt_tokens: int = 3600
    repeats: int = 3
    tokens: int = 8

    @property
    def case(self) -> str:
        return f"{self.prompt_tokens} tokens"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        system = prompts.text(await target.words_for_tokens(self.prompt_tokens))

        def question() -> ChatMessages:
            content = prompts.text(_QUESTION_WORDS)
            return [{"role": "system", "content": system}, {"role": "user", "content": content}]

        cold = await target.ask(question(), self.tokens)
        repeated = [(await target.ask(question(), self.tokens)).answer for _ in range(self.repeats)]
        answers = [cold.answer, *repeated]
        if any(answer.error for answer in answers):
            return Sample({}, answers)
        first, later = cold.answer.time_to_first_token, [answer.time_to_first_token for answer in repeated]
        values = {
            "cold": first * 1e3,
            "repeated": statistics.median(later) * 1e3,
            "worst": max(later) * 1e3,
            "repeated_over_cold": statistics.median(later) / first,
            "worst_over_cold": max(later) / first,
        }
        shares = [a.cached_tokens / a.prompt_tokens for a in repeated if a.cached_tokens is not None]
        if shares:
            values["cached"] = min(shares)
        bare = await target.run_bare_loop("bare_prefill", [cold])
        if bare is not None:
            values |= {"bare": bare.seconds * 1e3, "cold_over_bare": first / bare.seconds}
        return Sample(values, answers)
