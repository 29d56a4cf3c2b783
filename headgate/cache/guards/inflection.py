"""Inflected English words to their base form: plurals, -ed, -ing, -s, comparatives with more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from headgate.cache.guards.words import word_set


def _irregular() -> Mapping[str, str]:
    table: dict[str, str] = {}
    for line in (
        "be is are am was were been being", "have has had having", "do does did done doing", "go goes went gone",
        "get got gotten", "make made", "take took taken", "come came", "see saw seen", "know knew known",
        "give gave given", "find found", "think thought", "tell told", "become became", "leave left", "feel felt",
        "bring brought", "begin began begun", "keep kept", "hold held", "write wrote written", "stand stood",
        "hear heard", "mean meant", "meet met", "run ran", "pay paid", "sit sat", "speak spoke spoken", "lie lay lain",
        "lead led", "grow grew grown", "lose lost", "fall fell fallen", "send sent", "build built", "draw drew drawn",
        "break broke broken", "spend spent", "rise rose risen", "drive drove driven", "buy bought", "wear wore worn",
        "choose chose chosen", "sell sold", "eat ate eaten", "sleep slept", "teach taught", "catch caught",
        "fight fought", "fly flew flown", "forget forgot forgotten", "drink drank drunk", "swim swam swum",
        "sing sang sung", "throw threw thrown", "win won", "steal stole stolen", "freeze froze frozen",
        "bite bit bitten", "owe owed owing", "sue sued suing",
        "hide hid hidden", "ride rode ridden", "shake shook shaken", "wake woke woken", "blow blew blown",
        "dig dug", "feed fed", "hang hung", "shoot shot", "shine shone", "stick stuck", "swing swung", "lend lent",
        "beat beaten", "strike struck", "tear tore torn", "swear swore sworn", "sink sank sunk", "ring rang rung",
        "spin spun", "seek sought", "dream dreamt", "forbid forbade forbidden", "forgive forgave forgiven",
        "arise arose arisen", "bend bent", "bleed bled", "breed bred", "creep crept", "deal dealt", "flee fled",
        "kneel knelt", "leap leapt", "mistake mistook mistaken", "overcome overcame", "overtake overtook overtaken",
        "shrink shrank shrunk", "sew sewn", "show shown", "slide slid", "spill spilt", "spoil spoilt",
        "sting stung", "stink stank stunk", "sweep swept", "swell swollen", "undergo underwent undergone",
        "understand understood", "undo undid undone", "weave wove woven", "weep wept", "sow sown", "prove proven",
        "withdraw withdrew withdrawn", "burn burnt", "learn learnt", "lean leant", "rewrite rewrote rewritten",
        "rebuild rebuilt", "resell resold", "repay repaid", "retake retook retaken", "redo redid redone",
        "outgrow outgrew outgrown", "foresee foresaw foreseen", "panic panicked panicking",
        "use used", "found founded founding", "die died dying", "tie tied tying", "lie lied lying",
        "child children", "man men", "woman women", "person people persons", "foot feet", "tooth teeth",
        "mouse mice", "goose geese", "ox oxen", "knife knives", "life lives", "wife wives", "leaf leaves",
        "wolf wolves", "shelf shelves", "half halves", "loaf loaves", "thief thieves", "potato potatoes",
        "tomato tomatoes", "hero heroes", "echo echoes", "index indices indexes", "matrix matrices",
        "analysis analyses", "crisis crises", "basis bases", "criterion criteria", "phenomenon phenomena",
        "medium media", "datum data", "cactus cacti", "fungus fungi", "bacterium bacteria", "quiz quizzes",
        "virus viruses", "movie movies", "cookie cookies", "pie pies", "zombie zombies", "calorie calories",
        "selfie selfies", "brownie brownies", "smoothie smoothies", "hoodie hoodies", "prairie prairies",
        "rookie rookies", "freebie freebies", "volcano volcanoes", "tornado tornadoes", "mosquito mosquitoes",
        "mango mangoes", "avocado avocadoes", "octopus octopuses", "menu menus", "guru gurus", "radius radii",
        "diagnosis diagnoses", "vertex vertices", "scarf scarves", "bonus bonuses", "campus campuses",
        "focus focused focusing focuses", "bias biased", "cactus cactuses", "status statuses",
        "bus buses", "gas gases", "lens lenses", "process processes", "address addresses", "class classes",
    ):  # fmt: skip
        base, *forms = line.split()
        table |= {form: base for form in forms if form not in table}
    return MappingProxyType(table)


_IRREGULAR = _irregular()
_NO_PLURAL = word_set(
    "news physics mathematics maths economics politics ethics athletics gymnastics series species gas bus lens"
    " always perhaps this his its yes plus minus less unless across various previous serious famous business"
    " illness process address class glass boss loss mass pass cross dress press access success progress express"
    " stress fitness is was has does bias virus campus status bonus focus corpus census cactus octopus thus us"
    " analysis basis crisis thesis diabetes paris texas christmas athens wales mars venus jesus chess canvas atlas"
    " alias angeles johannes tennis dennis james charles headquarters means scissors trousers jeans glasses clothes"
    " stairs thanks https css dns aws ios gps sms rss tls cors"
)
_NO_ING = word_set(
    "thing something nothing anything everything king ring sing bring spring string wing swing sting cling fling"
    " substring earring hamstring morning evening ceiling during wedding pudding sibling building meeting being"
)
_NO_ED = word_set(
    "bed red need feed seed speed weed bleed breed indeed proceed succeed exceed hundred sacred naked embed shed"
    " nosebleed seaweed hatred led united wed fed med shred sled ted fred"
)
_VOWELS = "aeiouy"


_PLAIN_AT = word_set("eat heat treat beat seat repeat float chat defeat cheat great format combat threat boat coat")
_PLAIN_OR = word_set("monitor color author tutor sponsor anchor mirror error favor honor labor neighbor editor")
_WITH_E = word_set(
    "requir acquir inquir delet complet compet typ schedul execut recip not quot vot dat rat stat mov lov giv liv"
)
_DOUBLE_L = word_set("install enroll fulfill recall refill uninstall reinstall scroll unroll")
_E_AFTER_NG = word_set("chang exchang arrang rang challeng plung revenge reveng hing cring ting")
_PLAIN_SHORT = word_set(
    "visit edit limit audit open happen listen offer answer enter order cover deliver discover consider remember"
    " number cancel travel label model signal level control develop wonder render border transfer differ refer"
    " prefer suffer gather bother alter filter center master foster tailor vomit credit deposit exit inherit"
    " profit benefit market target budget ticket rocket pocket bracket garden harden darken soften fasten lighten"
    " strengthen shorten widen broaden worsen lessen ripen thicken loosen tighten sharpen straighten frighten"
    " threaten question mention function position condition pardon reason season lesson poison prison button"
    " cotton abandon reckon summon shelter trigger hammer matter flatter scatter utter better letter register"
    " administer minister whisper conquer stagger linger hunger anger finger wander ponder hinder gender surrender"
    " murder powder shoulder upload download reload load read lead need feed exit wait rain train gain explain"
    " contain maintain obtain complain retain remain sustain repair appear clear hear fear near wear tear bear"
    " swear cheer steer peer veer hair pair air soar roar pour tour sail mail fail tail nail bail boil soil oil"
    " spoil coil feel heal seal deal peel steal kneel heel reveal appeal conceal cool fool pool tool look cook"
    " book hook keep sleep weep sweep beep deep jeep clean lean mean learn earn turn burn run join coin loan moan"
    " groan roam foam dream cream scream steam team beam seem redeem screen green listen fix mix box tax relax"
    " index wax fax"
)


@lru_cache(maxsize=8192)
def base_form(word: str) -> str:
    """The base form of a lower-case word: `cities` → `city`, `running` → `run`, `went` → `go`.

    A guess by rules: what matters is that the forms of one word come out alike, not that the result is a word.
    """
    known = _IRREGULAR.get(word)
    if known is not None:
        return known
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("s") and word not in _NO_PLURAL and not word.endswith(("ss", "us", "is")):
        return _singular(word)
    if word.endswith("ing") and word not in _NO_ING and len(word) > 4 and _has_vowel(word[:-3]):
        return _restored(word[:-3])
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ed") and word not in _NO_ED and len(word) > 4 and _has_vowel(word[:-2]):
        return word[:-1] if word.endswith("eed") else _restored(word[:-2])
    return word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


def _restored(stem: str) -> str:
    """What stood before -ing or -ed: `hopp` → `hop`, `hop` → `hope`, `deliver` → `deliver`."""
    if stem in _IRREGULAR:
        return _IRREGULAR[stem]
    if stem in _PLAIN_SHORT or stem in _PLAIN_OR or stem in _PLAIN_AT:
        return stem
    if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] in "bdgmnprtl":
        # call, fill and add keep both.
        if stem[-1] == "l":
            return stem if _syllables(stem) == 1 or stem in _DOUBLE_L else stem[:-1]
        return stem if stem in ("add", "odd", "err") else stem[:-1]
    last, before = stem[-1], stem[-2] if len(stem) > 1 else ""
    if stem in _WITH_E or stem in _E_AFTER_NG or (last in "cuvz") or (last == "g" and before in "aidur"):
        return stem + "e"
    if last == "s" and before in "aeiourn" and not stem.endswith("ss"):
        return stem + "e"
    if last == "l" and before in "bcdfgkptz":
        return stem + "e"
    if stem.endswith("at") and len(stem) > 3:
        return stem + "e"
    if last == "r" and before in "aiou" and len(stem) > 3 and stem[-3] not in "aeiou":
        return stem + "e"
    if stem.endswith("ib"):
        return stem + "e"
    short = len(stem) > 1 and before in "aiou" and last in "bdkmnptrl" and (len(stem) < 3 or stem[-3] not in "aeiou")
    return stem + "e" if short and (_syllables(stem) == 1 or (before in "aiou" and last in "dkmnpt")) else stem


def _syllables(word: str) -> int:
    vowels = [letter in _VOWELS for letter in word]
    return sum(now and not earlier for now, earlier in zip(vowels, [False, *vowels], strict=False))


def _has_vowel(word: str) -> bool:
    return any(letter in _VOWELS for letter in word)
