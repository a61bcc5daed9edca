"""Schemas of things, written when the shipped weights were finished, as users' programs declare them."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field, HttpUrl


class Movie(BaseModel):
    title: str
    director: str
    release_year: int
    cast: list[str]


class Pronunciation(BaseModel):
    ipa: str
    syllables: int


class DictionaryEntry(BaseModel):
    headword: str
    part_of_speech: Literal["noun", "verb", "adjective", "adverb"]
    pronunciation: Pronunciation
    definitions: list[str]


class Severity(enum.StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Vulnerability(BaseModel):
    cwe: Annotated[str, Field(pattern=r"^CWE-[0-9]{1,4}$")]
    severity: Severity
    affected_lines: list[int]
    remediation: str


class Ledger(BaseModel):
    debit: float
    credit: float
    memo: str | None


class Shipment(BaseModel):
    tracking: str
    carrier: Literal["ups", "fedex", "dhl", "usps"]
    weight_kg: float
    fragile: bool
    eta: dt.date


class Chapter(BaseModel):
    heading: str
    page_count: int


class BookOutline(BaseModel):
    working_title: str
    chapters: list[Chapter]
    audience: str


class Verdict(BaseModel):
    guilty: bool
    sentence_months: int | None
    dissenting_judges: list[str]


class Coordinates(BaseModel):
    lat: Annotated[float, Field(ge=-90, le=90)]
    lng: Annotated[float, Field(ge=-180, le=180)]


class Landmark(BaseModel):
    landmark_name: str
    position: Coordinates
    built: int | None


class Flashcard(BaseModel):
    front: str
    back: str


class Deck(BaseModel):
    topic: str
    cards: Annotated[list[Flashcard], Field(min_length=2)]


class Paper(BaseModel):
    doi: str
    authors: list[str]
    venue: str
    peer_reviewed: bool


class Claim(BaseModel):
    statement: str
    supported: Literal["yes", "no", "unclear"]
    evidence: list[str]


class FactCheck(BaseModel):
    claims: list[Claim]
    overall_truthfulness: Annotated[int, Field(ge=0, le=10)]


class Medication(BaseModel):
    drug: str
    dose_mg: float
    times_daily: int


class Prescription(BaseModel):
    patient: str
    medications: list[Medication]
    refills: Annotated[int, Field(ge=0)]
    issued: dt.datetime


class Subscriber(BaseModel):
    id: UUID
    newsletter: bool
    plan: Literal["free", "pro", "team"]


class Bookmark(BaseModel):
    href: HttpUrl
    label: str
    starred: bool = False


class Reservation(BaseModel):
    party_size: Annotated[int, Field(ge=1, le=12)]
    seating: Literal["indoor", "patio", "bar"]
    special_requests: str | None = None


class Haiku(BaseModel):
    first_line: str
    second_line: str
    third_line: str


class Ingredient(BaseModel):
    food: str
    grams: float


class Nutrition(BaseModel):
    kcal: int
    protein_g: float
    fat_g: float


class Meal(BaseModel):
    meal: str
    made_of: list[Ingredient]
    nutrition: Nutrition
    vegetarian: bool


class Commit(BaseModel):
    kind: Literal["feat", "fix", "chore", "refactor"]
    scope: str | None
    subject_line: Annotated[str, Field(max_length=72)]
    breaking: bool


class PlayerMove(BaseModel):
    from_square: Annotated[str, Field(pattern=r"^[a-h][1-8]$")]
    to_square: Annotated[str, Field(pattern=r"^[a-h][1-8]$")]
    promotion: Literal["q", "r", "b", "n"] | None


class Diagnosis(BaseModel):
    condition: str
    icd10: str
    likelihood: Annotated[float, Field(ge=0, le=1)]


class Triage(BaseModel):
    acuity: Literal[1, 2, 3, 4, 5]
    differential: list[Diagnosis]
    needs_imaging: bool


class Node(BaseModel):
    node_label: str
    branches: list[Node]


class Playlist(BaseModel):
    mood: str
    songs: list[str]
    total_minutes: int


class TimeWindow(BaseModel):
    opens: dt.time
    closes: dt.time


class StoreHours(BaseModel):
    weekday: TimeWindow
    weekend: TimeWindow
    closed_on: list[str]


class Glossary(BaseModel):
    terms: dict[str, str]


class Histogram(BaseModel):
    buckets: dict[str, int]
    n_samples: int


class RouterDecision(BaseModel):
    next_agent: Literal["researcher", "coder", "writer", "FINISH"]
    instructions: str


class Slide(BaseModel):
    bullet_points: list[str]
    speaker_notes: str


class Presentation(BaseModel):
    deck_title: str
    slides: list[Slide]


class JobPosting(BaseModel):
    role: str
    seniority: Literal["junior", "mid", "senior"]
    salary_min: int
    salary_max: int
    remote: bool
    must_haves: list[str]


class Contact(BaseModel):
    given_name: str
    family_name: str
    mail: Annotated[str, Field(json_schema_extra={"format": "email"})] | None


class Receipt(BaseModel):
    merchant: str
    purchased_on: dt.date
    lines: list[Ingredient]
    tip: float | None
    grand_total: float


class Thermostat(BaseModel):
    target_c: Annotated[float, Field(ge=5, le=30)]
    mode: Literal["heat", "cool", "off"]


class Guess(BaseModel):
    letter: Annotated[str, Field(min_length=1, max_length=1)]
    confidence_pct: int


class QueryPlan(BaseModel):
    sub_queries: list[str]
    needs_web: bool
    depth: Annotated[int, Field(ge=1, le=3)]


class StoryBeat(BaseModel):
    who: str
    does_what: Annotated[str, Field(min_length=15)]
    outcome: str


class Screenplay(BaseModel):
    logline: str
    beats: list[StoryBeat]


class Ranking(BaseModel):
    ordered_ids: list[int]
    tie: bool


class Palette(BaseModel):
    primary_hex: Annotated[str, Field(pattern=r"^#[0-9A-F]{6}$")]
    accents: list[str]
    dark_mode: bool
