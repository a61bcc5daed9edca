"""Arguments of tools, written when the shipped weights were finished; the docstrings describe the tools."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Nothing(BaseModel):
    """Takes no arguments."""


class CityArguments(BaseModel):
    """Get the air quality index of a city."""

    city: str


class FlightArguments(BaseModel):
    """Look up the status of a flight."""

    flight_number: Annotated[str, Field(description="IATA code and number, e.g. LH400")]
    on: dt.date | None = None


class PowerArguments(BaseModel):
    """Raise a base to an exponent."""

    base: float
    exponent: int


class GrepArguments(BaseModel):
    """Search files with a regular expression."""

    pattern: str
    path: str | None = None
    glob: str | None = None
    output_mode: Literal["content", "files_with_matches", "count"] = "files_with_matches"
    multiline: bool = False


class PatchArguments(BaseModel):
    """Apply a patch to the working tree."""

    patch: str
    dry_run: bool


class ReminderArguments(BaseModel):
    """Remind the user of something."""

    text: str
    at: dt.datetime
    repeat: Literal["never", "daily", "weekly"] = "never"


class LightArguments(BaseModel):
    """Switch a light."""

    room: str
    on: bool
    brightness: Annotated[int, Field(ge=0, le=100)] = 100


class OrderLine(BaseModel):
    """One line of an order."""

    sku: str
    count: Annotated[int, Field(ge=1)]


class OrderArguments(BaseModel):
    """Place an order."""

    customer_id: str
    lines: list[OrderLine]
    gift_wrap: bool = False


class MailArguments(BaseModel):
    """Send an e-mail."""

    recipients: list[str]
    subject: str
    html_body: str


class TranslateArguments(BaseModel):
    """Translate text into another language."""

    text: str
    target: Annotated[str, Field(pattern="^[a-z]{2}(-[A-Z]{2})?$")]


class RetrievalArguments(BaseModel):
    """Retrieve documents from the vector store."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    filters: dict[str, str] | None = None


class PlotArguments(BaseModel):
    """Draw a chart."""

    kind: Literal["bar", "line", "pie"]
    x: list[str]
    y: list[float]
    title: str | None = None


class HandoffArguments(BaseModel):
    """Hand the conversation to another agent."""

    reason: str


class ScreenArguments(BaseModel):
    """Use the mouse and the keyboard of a computer."""

    action: Literal["click", "type", "scroll", "screenshot"]
    coordinate: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    text: str | None = None


class StockArguments(BaseModel):
    """Get the price of a share."""

    ticker: str


class UserArguments(BaseModel):
    """The user's data."""

    name: str
    age: int


class MemoryArguments(BaseModel):
    """Store a memory about the user."""

    memory: str
    importance: Annotated[int, Field(ge=1, le=5)]


class HttpArguments(BaseModel):
    """Make a request over HTTP."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    url: str
    headers: dict[str, str] = {}


class ShellArguments(BaseModel):
    """Run a command in a shell."""

    command: list[str]
    workdir: str | None = None
    timeout_ms: int | None = None


class PlanStep(BaseModel):
    """A step of a plan."""

    step: str
    status: Literal["pending", "in_progress", "completed"]


class PlanArguments(BaseModel):
    """Update the plan."""

    explanation: str | None = None
    plan: list[PlanStep]


class EventArguments(BaseModel):
    """Create an event in a calendar."""

    summary: str
    start: dt.datetime
    end: dt.datetime
    attendees: list[str] = []


class CurrencyArguments(BaseModel):
    """Convert money."""

    amount: float
    base: Literal["EUR", "USD", "JPY"]
    quote: Literal["EUR", "USD", "JPY"]


class FinishArguments(BaseModel):
    """Return the final answer to the user."""

    answer: str
    sources: list[str]
    confident: bool
