"""The guide's table of request limits agrees with the constants in the code."""

from __future__ import annotations

import re
from pathlib import Path

from greenroom.engine.media.recordings import MAX_SAMPLES, MAX_SECONDS
from greenroom.engine.tokenizer.reading_in_pieces import LONGEST_PIECE
from greenroom.http.answering.request_parameters import MAX_MODEL_NAME
from greenroom.http.guard import json_counter, multipart_forms
from greenroom.http.guard.json_counter import MAX_HELD
from greenroom.http.guard.multipart_forms import FILES_AT_MOST
from greenroom.http.guard.request_body import FURTHER_BYTES
from greenroom.http.media.fetcher import MAX_ADDRESSES
from greenroom.http.media.media_reader import MAX_FILE_BYTES, MAX_TOTAL_BYTES
from greenroom.http.openai.completions import MAX_SCORED_TOKENS
from greenroom.schemas.messages.messages import MAX_CALLS, MAX_MESSAGES, MAX_PARTS, MAX_TOOLS
from greenroom.schemas.wire.openai_chat import MAX_PROMPTS

LIMITS = {
    "levels of arrays": json_counter.MAX_DEPTH,
    "arrays and objects": json_counter.MAX_CONTAINERS,
    "members of objects": json_counter.MAX_MEMBERS,
    "strings": json_counter.MAX_STRINGS,
    "items and members": json_counter.MAX_VALUES,
    "backslashes": json_counter.MAX_ESCAPES,
    "bytes of strings": json_counter.MAX_WIDE_BYTES,
    "digits": json_counter.MAX_DIGITS,
    "`messages`": MAX_MESSAGES,
    "parts of a message": MAX_PARTS,
    "`tool_calls`": MAX_CALLS,
    "`tools`": MAX_TOOLS,
    "bytes of an image": MAX_FILE_BYTES,
    "bytes of all files": MAX_TOTAL_BYTES,
    "files that": MAX_ADDRESSES,
    "prompts": MAX_PROMPTS,
    "tokens of prompts": MAX_SCORED_TOKENS,
    "characters of `model`": MAX_MODEL_NAME,
    "characters in a row": LONGEST_PIECE,
    "bytes that": FURTHER_BYTES,
    "decoded arrays and objects": MAX_HELD,
    "files of that size": FILES_AT_MOST,
    "parts of a form": multipart_forms.MAX_PARTS,
    "bytes of a form's field": multipart_forms.MAX_FIELD_BYTES,
    "bytes of the head": multipart_forms.MAX_HEAD_BYTES,
    "bytes a second": multipart_forms.SLOWEST,
    "seconds of a recording": MAX_SECONDS,
    "samples of a recording": MAX_SAMPLES,
}


def test_the_guide_tells_every_limit() -> None:
    guide = (Path(__file__).parents[2] / "notes" / "guide.md").read_text()
    section = guide.partition("## Limits of a request")[2].partition("\n## ")[0]
    rows = re.findall(r"^- ([\d,]+) (.+?): \d", section, re.MULTILINE)
    told = {
        name: int(number.replace(",", ""))
        for number, what in rows
        for name in LIMITS
        if what.startswith(name)
    }
    assert told == LIMITS
    assert len(rows) == len(LIMITS)
