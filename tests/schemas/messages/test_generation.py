"""Generation parameters given as keywords by programs."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

import attrs
import pytest

from greenroom.schemas.messages.generation import GenerationParameters, Parameters, parameters
from greenroom.schemas.problems import ProblemError


def test_there_is_a_keyword_for_every_parameter_and_no_other() -> None:
    assert list(get_type_hints(Parameters)) == [field.name for field in attrs.fields(GenerationParameters)]


def test_values_become_those_of_a_request() -> None:
    assert parameters() == {}
    given = parameters(temperature=1, stop="end", logit_bias={7: -1}, stop_token_ids=[2], max_tokens=5)
    assert given == {
        "temperature": 1.0,
        "stop": ("end",),
        "logit_bias": ((7, -1.0),),
        "stop_token_ids": (2,),
        "max_tokens": 5,
    }
    assert GenerationParameters(**given).stop == ("end",)


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ProblemError, match="`temperature` is 3, but it must be a number from 0 to 2"):
        parameters(temperature=3)
    with pytest.raises(TypeError, match="temprature"):
        parameters(**cast("Any", {"temprature": 0.5}))
