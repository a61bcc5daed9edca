"""Schemas of what programs want to know of a text, written when the shipped weights were finished."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Language(BaseModel):
    detected: str
    iso_code: Annotated[str, Field(pattern=r"^[a-z]{2}$")]


class Toxicity(BaseModel):
    insult: bool
    threat: bool
    profanity: bool
    toxicity_score: Annotated[float, Field(ge=0, le=1)]


class Aspect(BaseModel):
    aspect: str
    polarity: Literal["pos", "neg", "neu"]


class AspectReport(BaseModel):
    aspects: list[Aspect]


class Relation(BaseModel):
    subject_entity: str
    predicate: str
    object_entity: str


class KnowledgeGraph(BaseModel):
    relations: list[Relation]


class Intent(BaseModel):
    intent: Literal["book", "cancel", "reschedule", "other"]
    slots: dict[str, str]


class Redaction(BaseModel):
    redacted_text: str
    replaced: int


class Quote(BaseModel):
    quoted: str
    speaker: str | None


class Article(BaseModel):
    byline: str
    dateline: dt.date | None
    quotes: list[Quote]
    word_total: int


class AddressLines(BaseModel):
    line_1: str
    line_2: str | None
    postcode: str
    country_code: Annotated[str, Field(min_length=2, max_length=2)]


class Parcel(BaseModel):
    sender: AddressLines
    recipient: AddressLines
    insured_value: float


class LogEvent(BaseModel):
    happened_at: dt.datetime
    component: str
    exit_code: int


class Unit(BaseModel):
    quantity: float
    symbol: Literal["kg", "m", "s", "K", "mol"]


class Measurement(BaseModel):
    measured: Unit
    converted: Unit
    exact: bool


class Grade(BaseModel):
    letter_grade: Literal["A", "B", "C", "D", "F"]
    strengths: list[str]
    improvements: list[str]


class Regex(BaseModel):
    pattern_text: str
    flags: list[Literal["i", "m", "s"]]
    matches: bool


class Timeline(BaseModel):
    events: dict[str, str]
    span_years: int


class Answer(BaseModel):
    chain_of_thought: Annotated[list[str], Field(max_length=4)]
    final: str


class Choice(BaseModel):
    option: Literal["a", "b", "c", "d"]
    because: str


class Allergen(BaseModel):
    contains: list[Literal["gluten", "nuts", "dairy", "egg"]]
    may_contain_traces: bool


class SqlQuery(BaseModel):
    statement: str
    tables: list[str]
    read_only: bool


class Duration(BaseModel):
    iso_duration: dt.timedelta
    in_words: str


class Sensor(BaseModel):
    readings: Annotated[list[float], Field(min_length=3, max_length=3)]
    faulty: bool


class NameParts(BaseModel):
    prefix: str | None
    forename: str
    surname: str


class Headlines(BaseModel):
    variants: Annotated[list[str], Field(min_length=3)]


class Server(BaseModel):
    ipv4: Annotated[str, Field(json_schema_extra={"format": "ipv4"})]
    open_ports: list[int]
    os_guess: str | None


class Settlement(BaseModel):
    amount_due: float | int | str
    agreed: bool
