"""English names of the languages that Whisper supports, as in OpenAI's responses."""

from __future__ import annotations

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
