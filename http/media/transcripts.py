"""Names of languages, and the written form of transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

import attrs

from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.result_events import Recording, Segment

_TABLE = """
af=afrikaans am=amharic ar=arabic as=assamese az=azerbaijani ba=bashkir be=belarusian bg=bulgarian
bn=bengali bo=tibetan br=breton bs=bosnian ca=catalan cs=czech cy=welsh da=danish de=german el=greek
en=english es=spanish et=estonian eu=basque fa=persian fi=finnish fo=faroese fr=french gl=galician
gu=gujarati ha=hausa haw=hawaiian he=hebrew hi=hindi hr=croatian ht=haitian_creole hu=hungarian
hy=armenian id=indonesian is=icelandic it=italian ja=japanese jw=javanese ka=georgian kk=kazakh
km=khmer kn=kannada ko=korean la=latin lb=luxembourgish ln=lingala lo=lao lt=lithuanian lv=latvian
mg=malagasy mi=maori mk=macedonian ml=malayalam mn=mongolian mr=marathi ms=malay mt=maltese
my=myanmar ne=nepali nl=dutch nn=nynorsk no=norwegian oc=occitan pa=punjabi pl=polish ps=pashto
pt=portuguese ro=romanian ru=russian sa=sanskrit sd=sindhi si=sinhala sk=slovak sl=slovenian
sn=shona so=somali sq=albanian sr=serbian su=sundanese sv=swedish sw=swahili ta=tamil te=telugu
tg=tajik th=thai tk=turkmen tl=tagalog tr=turkish tt=tatar uk=ukrainian ur=urdu uz=uzbek
vi=vietnamese yi=yiddish yo=yoruba yue=cantonese zh=chinese
"""

_NAMES = dict(entry.replace("_", " ").split("=") for entry in _TABLE.split())


def language_name(code: str | None) -> str:
    """Return the lower-case English name of a language, or its code if the name is unknown."""
    return "unknown" if code is None else _NAMES.get(code, code)


def language_code(name: str | None) -> str | None:
    """Return the code of a language by the name that `language_name` gives it."""
    if name is None or name == language_name(None):
        return None
    return next((code for code, known in _NAMES.items() if known == name), name)


Task = Literal["transcribe", "translate"]


@attrs.frozen
class Transcript:
    task: Task
    recording: Recording
    segments: tuple[Segment, ...]
    usage: Usage

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments).strip()


def collected_transcript(task: Task, events: Sequence[object], usage: Usage) -> Transcript:
    """Assemble a transcript from events; the last `Recording` event is the most complete."""
    recordings = [event for event in events if isinstance(event, Recording)]
    segments = tuple(event for event in events if isinstance(event, Segment))
    return Transcript(task, recordings[-1] if recordings else Recording(usage.heard), segments, usage)


def plain_text(transcript: Transcript, form: str) -> str:
    match form:
        case "srt":
            return srt(transcript.segments)
        case "vtt":
            return vtt(transcript.segments)
    return f"{transcript.text}\n"


_LEAST = 0.001  # Shortest cue in seconds: players omit cues of zero length


def srt(segments: Iterable[Segment]) -> str:
    return "".join(
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(_end(segment), ',')}\n{_line(segment.text)}\n\n"
        for number, segment in enumerate(segments, start=1)
    )


def vtt(segments: Iterable[Segment]) -> str:
    return "WEBVTT\n\n" + "".join(
        f"{_clock(segment.start, '.')} --> {_clock(_end(segment), '.')}\n"
        f"{escape(_line(segment.text), quote=False)}\n\n"
        for segment in segments
    )


def _end(segment: Segment) -> float:
    return max(segment.end, segment.start + _LEAST)


def _line(text: str) -> str:
    """Return text on one line without arrows: an empty line would end its cue, an arrow start one."""
    return " ".join(text.split()).replace("-->", "->")


def _clock(seconds: float, mark: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{mark}{milliseconds % 1000:03d}"
