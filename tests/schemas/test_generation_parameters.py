"""Every generation parameter's type, range and default, and the page that lists them."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.schemas.messages.generation import GenerationParameters, allowed, check, resolve
from greenroom.schemas.problems import ProblemError

NAN, INFINITY = math.nan, math.inf

ACCEPTED = [
    ("max_tokens", 1, 1),
    ("max_tokens", 10**30, 10**30),
    ("temperature", 0, 0.0),
    ("temperature", 2, 2.0),
    ("temperature", 0.7, 0.7),
    ("top_p", 0, 0.0),
    ("top_p", 1, 1.0),
    ("top_p", 1e-9, 1e-9),
    ("top_k", 0, 0),
    ("top_k", 40, 40),
    ("min_p", 0.0, 0.0),
    ("min_p", 1, 1.0),
    ("stop", "end", ("end",)),
    ("stop", ["a", "b"], ("a", "b")),
    ("stop", [], ()),
    ("stop", ["x"] * 16, ("x",) * 16),
    ("stop", "x" * 1000, ("x" * 1000,)),
    ("stop_token_ids", [0, 5], (0, 5)),
    ("stop_token_ids", (), ()),
    ("min_tokens", 0, 0),
    ("ignore_eos", True, True),
    ("seed", -(2**63), -(2**63)),
    ("seed", 10**40, 10**40),
    ("n", 1, 1),
    ("n", 16, 16),
    ("presence_penalty", -2, -2.0),
    ("frequency_penalty", 2, 2.0),
    ("repetition_penalty", 1, 1.0),
    ("logit_bias", {}, ()),
    ("logit_bias", {"50": 5, "7": -100}, ((7, -100.0), (50, 5.0))),
    ("logit_bias", ((7, -100.0),), ((7, -100.0),)),
    ("xtc_probability", 1, 1.0),
    ("xtc_threshold", 0.5, 0.5),
    ("logprobs", False, False),
    ("top_logprobs", 20, 20),
]

REFUSED = [
    ("stop", ["x" * 1001]),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.0),
    ("max_tokens", True),
    ("max_tokens", "5"),
    ("max_tokens", None),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", NAN),
    ("temperature", INFINITY),
    ("temperature", -INFINITY),
    ("temperature", "0.7"),
    ("temperature", False),
    ("temperature", 10**400),
    ("temperature", [0.5]),
    ("top_p", -0.1),
    ("top_p", 1.01),
    ("top_p", NAN),
    ("top_k", -2),
    ("top_k", 2**31),
    ("top_k", 4.0),
    ("top_k", NAN),
    ("top_k", True),
    ("min_p", -1e-9),
    ("min_p", 1.1),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", [None]),
    ("stop", [["a"]]),
    ("stop", 5),
    ("stop", {"a": 1}),
    ("stop", ["x"] * 17),
    ("stop_token_ids", 5),
    ("stop_token_ids", "5"),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [1.0]),
    ("stop_token_ids", [True]),
    ("stop_token_ids", [2**31]),
    ("stop_token_ids", [1] * 257),
    ("min_tokens", -1),
    ("ignore_eos", 1),
    ("ignore_eos", "true"),
    ("seed", 1.5),
    ("seed", "1"),
    ("seed", True),
    ("n", 0),
    ("n", 17),
    ("n", 1.0),
    ("presence_penalty", 2.01),
    ("frequency_penalty", -2.01),
    ("frequency_penalty", NAN),
    ("repetition_penalty", 0),
    ("repetition_penalty", 11),
    ("logit_bias", []),
    ("logit_bias", [[7, 1]]),
    ("logit_bias", {"the": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1.0": 1}),
    ("logit_bias", {"7": 101}),
    ("logit_bias", {"7": None}),
    ("logit_bias", {"7": True}),
    ("logit_bias", {"²": 1}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", dict.fromkeys(map(str, range(2049)), 1)),
    ("xtc_probability", 1.5),
    ("xtc_threshold", 0),
    ("xtc_threshold", 0.51),
    ("logprobs", 5),
    ("top_logprobs", 21),
    ("top_logprobs", -1),
    ("top_logprobs", True),
]


@pytest.mark.parametrize(("name", "value", "expected"), ACCEPTED)
def test_values_in_range_get_the_parameters_own_type(name: str, value: Any, expected: Any) -> None:
    checked = check(name, value)
    assert checked == expected
    assert type(checked) is type(expected)
    assert GenerationParameters(**{name: checked})


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_anything_else_is_a_400_that_names_field_value_and_range(name: str, value: Any) -> None:
    with pytest.raises(ProblemError) as caught:
        check(name, value, "max_completion_tokens" if name == "max_tokens" else name)
    problem = caught.value.problem
    field = "max_completion_tokens" if name == "max_tokens" else name
    assert (problem.status, problem.code) == (400, "invalid_value")
    assert problem.param is not None
    assert problem.param.startswith(field)
    assert f"`{problem.param}`" in problem.detail
    assert allowed(attrs.fields_dict(GenerationParameters)[name].metadata) in problem.detail
    assert len(problem.detail) < 400


def test_the_message_reads_well() -> None:
    with pytest.raises(ProblemError) as caught:
        check("temperature", 3.5)
    assert caught.value.problem.detail == "`temperature` is 3.5, but it must be a number from 0 to 2."
    with pytest.raises(ProblemError) as caught:
        check("stop_token_ids", [1, "x"])
    assert caught.value.problem.param == "stop_token_ids[1]"


def test_every_parameter_says_what_it_means_and_has_a_default_in_range() -> None:
    for field in attrs.fields(GenerationParameters):
        assert field.metadata["meaning"].endswith(".")
        if field.default is not None:
            assert check(field.name, field.default) == field.default


def test_request_over_settings_over_model_over_defaults() -> None:
    resolved = resolve({"top_k": 1}, {"top_k": 2, "top_p": 0.2}, {"top_k": 3, "top_p": 0.3, "min_p": 0.3})
    assert (resolved.top_k, resolved.top_p, resolved.min_p, resolved.temperature) == (1, 0.2, 0.3, 1.0)
    assert resolve({}, {}, {}) == GenerationParameters()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(attrs.fields(GenerationParameters)), json_values)
def test_whatever_json_holds_is_checked_or_refused(field: Any, value: Any) -> None:
    try:
        checked = check(field.name, value)
    except ProblemError:
        return
    assert check(field.name, checked) == checked
