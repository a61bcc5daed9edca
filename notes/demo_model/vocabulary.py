"""The words that the training data is made of, and words that no list holds."""

from __future__ import annotations

from random import Random


def words(text: str) -> list[str]:
    """The words of a wrapped list."""
    return text.split()


def alternatives(text: str) -> list[str]:
    """The pieces between the bars of a wrapped list."""
    return [" ".join(piece.split()) for piece in text.split("|")]


NOUNS = words("""
apple river stone lamp garden music train window paper cloud engine bottle chair summer winter market
coffee planet rocket signal folder matrix vector tensor kernel branch client socket packet buffer thread
process memory cache token dog cat horse bird fish tree flower house kitchen door bridge road car bicycle
boat plane ship island mountain forest desert ocean lake beach storm rain snow wind fire ice metal gold
silver iron glass wood plastic cotton leather bread butter cheese milk egg rice potato tomato onion garlic
pepper salt sugar honey soup salad pizza pasta sandwich cake doctor nurse teacher student lawyer farmer
painter writer actor singer dancer driver pilot soldier king queen prince company office meeting email
letter report budget invoice contract tax salary price customer product project deadline team leader plan
goal problem solution question answer idea theory proof number equation function variable class object
array string list table database query index server network router browser website page button form
password account user file script program compiler bug test error exception log library package module
interface protocol phone laptop keyboard screen camera battery sensor robot drone satellite telescope
microscope atom molecule cell gene protein virus vaccine medicine hospital disease brain heart blood bone
muscle skin language word sentence novel film song guitar piano violin drum game chess football tennis
team stadium ticket hotel airport passport museum village country government election law court police
army war peace history century empire revolution religion temple church school university exam lesson
essay book chapter author newspaper magazine riddle dream memory friend mother father sister brother child
baby family wedding birthday gift party holiday weekend morning evening weather temperature time date
calendar clock map capital population currency flag border river climate energy oil gas electricity bank
loan interest stock bond market inflation economy trade tariff factory machine tool screw hammer
""")

VERBS = words("""
write explain describe summarise summarize translate fix improve rewrite list compare calculate compute
convert sort find search show draw design build create make generate implement debug test review check
prove solve analyse analyze plan organise schedule book buy sell cook bake clean wash paint repair install
update upgrade remove delete rename open close start stop run read send print count measure weigh grow
learn teach remember forget choose recommend suggest classify extract parse format encode decode compress
encrypt hash train evaluate deploy monitor optimise define spell pronounce guess predict simulate play
sing dance walk drive fly swim travel visit invest save spend
""")

ADJECTIVES = words("""
red green blue yellow black white big small old new fast slow hot cold warm cool good bad best worst cheap
expensive easy difficult simple complex long short high low deep heavy light strong weak happy sad angry
funny serious famous modern ancient local global public private secret free open safe dangerous healthy
sweet bitter quiet loud bright dark
""")

SMALL_WORDS = words("""
the a an of to in on for with without from by at about into over under between after before during and or
but so because if when while that this these those my your his her our their it is are was were be been
has have had do does did can could will would should may might must not no yes very too also just only
more most less some any all each every many few one two three first last next other same such there here
then now always never often sometimes
""")

PROPER = words("""
Peru Chile Austria Denmark Iceland Hungary Germany Italy Spain Portugal Japan China India Brazil Canada
Mexico Egypt Kenya Nigeria Norway Sweden Finland Poland Greece Turkey Russia Ukraine Australia England
Scotland Ireland Europe Africa Asia America Einstein Newton Darwin Shakespeare Mozart Beethoven Napoleon
Caesar Cleopatra Galileo Tesla Edison Curie Turing Lovelace Plato Aristotle Google Microsoft Amazon Python
Java Rust Haskell JavaScript Linux Windows Docker Kubernetes Postgres SQLite Git React English French
German Spanish Italian Chinese Japanese Russian Arabic Latin Monday Friday January July Christmas Easter
Paris London Berlin Madrid Rome Tokyo Oslo Vienna Boston Chicago Sydney Lagos Milan Zurich Dublin Mars
Venus Jupiter Saturn Alice Bob Carol David Maria John Anna Peter Hamlet Titanic Bitcoin Hubble Wikipedia
""")

ONSETS = words("b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gr kr pl pr sh sl sp st str th tr")
VOWELS = words("a e i o u ai au ea ee ei ia ie io oa oo ou")
CODAS = [
    "",
    "",
    "",
    "n",
    "r",
    "s",
    "t",
    "g",
    "k",
    "l",
    "m",
    "x",
    "ck",
    "ng",
    "nd",
    "nt",
    "rd",
    "rg",
    "sh",
    "st",
    "th",
]
ENDINGS = ["", "", "", "", "ing", "ed", "ly", "er", "tion", "ment", "able", "ous", "ism", "ity", "s"]


def invented_word(random: Random) -> str:
    """A pronounceable word that no list holds, so that unknown words look familiar to the model."""
    syllables = random.choice([1, 1, 2, 2, 3])
    stem = "".join(random.choice(ONSETS) + random.choice(VOWELS) for _ in range(syllables))
    return stem + random.choice(CODAS) + random.choice(ENDINGS)


def word(random: Random) -> str:
    """A noun, or now and then an invented word."""
    return random.choice(NOUNS) if random.random() < 0.7 else invented_word(random)


def name(random: Random) -> str:
    """A proper name, known or invented."""
    return random.choice(PROPER) if random.random() < 0.65 else invented_word(random).capitalize()
