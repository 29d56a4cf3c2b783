"""A text as the guards see it: typed tokens in order."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from headgate.cache.guards import dates, numbers, series
from headgate.cache.guards.lexicon import CONTRACTIONS, IS_AFTER, SYNONYMS

Kind = Literal["word", "number", "date", "quoted", "code", "symbol"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token: what it is and the form in which it is compared."""

    kind: Kind
    form: str
    capital: bool = False
    """Written with a capital letter where a common word would not be: a name."""
    opens: bool = False
    """The first word of a sentence, where a capital letter says nothing."""


_SCANNER = re.compile(
    r"""
      (?P<fence>```.*?```|~~~.*?~~~)
    | (?P<inline>`[^`\n]+`)
    | (?P<double>"[^"\n]*"|“[^”\n]*”|«[^»\n]*»)
    | (?P<single>(?<!\w)'[^'\n]+'(?!\w)|‘[^’\n]+’(?!\w))
    | (?P<url>\w+://[^\s)]+|[\w.+-]+@[\w-]+\.[\w.]+)
    | (?P<date>(?<![\w.])[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?![\w/-]))
    | (?P<fraction>(?<![\w/.])(?:[0-9]+[ ])?[0-9]+/[0-9]+(?![\w/])|[½¼¾⅓⅔])
    | (?P<range>(?<=[0-9])[-–](?=[0-9]))
    | (?P<joint>(?<=[0-9])-(?=[^\W\d_]{3}))
    | (?P<time>
          (?<![\w.:])[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:\s?[aApP]\.?[mM]\b\.?)?
        | (?<![\w.:])[0-9]{1,2}\s?[aApP]\.?[mM]\b\.?
      )
    | (?P<code>
          (?<!\S)--?[A-Za-z][\w-]*
        | \.?[^\W\d]\w*(?:(?:\.|::|->|/|\\)\w+)+(?:\(\))?
        | [^\W\d]\w*\(\)
        | [^\W\d_]+(?:\+\+|\#)(?!\w)
        | \w*_\w*
        | [a-z]+[A-Z]\w* | [A-Z][a-z]+[A-Z]\w*
        | [^\W\d_]+[0-9]\w*
        | \\+[A-Za-z](?![A-Za-z])
        | [0-9]+(?:\.[0-9]+){2,}
        | (?m:^(?:\t|[ ]{2,})\S.*$)
      )
    | (?P<number>
          (?:[$€£¥]\s?)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)
          (?:%|\s?°\s?[CF]|\s?[kKMGTP]i?[bB]\b|[^\W_]*)
      )
    | (?P<word>[^\W\d_][^\W_]*(?:['’-][^\W_]+)*)
    | (?P<end>[.!?\n]+(?=\s|$)|\n)
    | (?P<other>[^\s.,;:?…]|(?<=[0-9]),(?=[0-9])|[.;:?](?=\S))
    """,
    re.VERBOSE | re.DOTALL,
)

_CALENDAR = {
    form: name
    for name, forms in {
        "monday": "monday mondays mon", "tuesday": "tuesday tuesdays tue tues",
        "wednesday": "wednesday wednesdays wed weds",
        "thursday": "thursday thursdays thu thur thurs", "friday": "friday fridays fri",
        "saturday": "saturday saturdays", "sunday": "sunday sundays", "january": "january jan",
        "february": "february feb", "april": "april apr", "june": "june jun", "july": "july jul",
        "august": "august aug", "september": "september sep sept", "october": "october oct",
        "november": "november nov", "december": "december dec", "weekend": "weekend weekends",
        "weekday": "weekday weekdays", "christmas": "christmas",
        "easter": "easter", "spring": "spring", "summer": "summer summertime",
        "autumn": "autumn fall", "winter": "winter wintertime",
    }.items()
    for form in forms.split()
}  # fmt: skip
_BRAND = re.compile(r"[a-z][A-Z][a-z]{2,}|(?:[A-Z][a-z]+)+[A-Z][a-z]*|[a-z]+OS")
"""iPhone, GitHub, macOS: a name, which others write in lower case, though it could be code."""
_MONTHS_THAT_ARE_WORDS = frozenset({"may", "march", "mar"})
_BEFORE_DAY = frozenset({"on", "to", "from", "every", "each", "until", "by", "next", "this"})
_BEFORE_SEASON = frozenset({"in", "every", "last", "next", "this", "during", "each", "early", "late"})
_PHRASES = {("a", "few"): "a_few", ("a", "little"): "a_little", ("a", "lot"): "a_lot", ("no", "one"): "no_one"}
_MERGED = numbers.SPELLED | {
    *_CALENDAR,
    *_MONTHS_THAT_ARE_WORDS,
    "a",
    "an",
    "no",
    "half",
    "twice",
    "fall",
    "sat",
    "sun",
}
"""Words that may become something else together with what stands beside them."""


def words_of(tokens: Iterable[Token]) -> list[str]:
    """The form of each word, and an empty one for what is no word."""
    return [token.form if token.kind == "word" else "" for token in tokens]


def read(text: str) -> list[Token]:
    """Tokens of a text. Punctuation that only ends or joins sentences is left out; everything else is kept."""
    text = unicodedata.normalize("NFC", text).strip()
    shouting = text.upper() == text
    tokens: list[Token] = []
    opens = True
    for match in _SCANNER.finditer(text):
        group = match.lastgroup
        piece = match.group()
        if group == "end":
            # 5! is a factorial, not an exclamation.
            if (
                piece[0] == "!"
                and match.start()
                and (text[match.start() - 1].isdigit() or text[match.start() - 1] == ")")
            ):
                tokens.append(Token("symbol", "!"))
            opens = True
            continue
        if group == "joint":
            # A 10-minute walk takes 10 minutes.
            continue
        if group == "word":
            tokens.extend(_words(piece, opens, shouting))
        elif group == "number":
            tokens.append(_number(piece.strip()))
        elif group in ("double", "single"):
            tokens.append(Token("quoted", piece[1:-1]))
        elif group == "time":
            tokens.append(Token("date", _clock(piece)))
        elif group == "date":
            tokens.append(Token("date", dates.canonical(piece)))
        elif group == "fraction":
            tokens.append(Token("number", f"#{numbers.fraction(piece)}"))
        elif group == "range" or piece == "→":
            tokens.append(Token("word", "to"))
        elif group == "other":
            tokens.append(Token("symbol", piece))
        elif group == "code" and _BRAND.fullmatch(piece):
            tokens.append(Token("word", piece.lower(), True))
        else:
            tokens.append(Token("code", piece))
        opens = False
    return _placed(_dated(_merge(_counted(tokens))))


def _counted(tokens: list[Token]) -> list[Token]:
    """Roman numerals, and `Henry the Eighth`, become numbers."""
    words = [token.form if token.kind == "word" else "" for token in tokens]
    out: list[Token] = []
    for at, token in enumerate(tokens):
        named = at > 0 and tokens[at - 1].capital
        value = None
        if words[at] and words[at][0] in "ivxl":
            value = series.numeral(words, at, name=named, written_large=token.capital and len(token.form) > 1)
        if value is not None:
            out.append(Token("number", f"#{value}"))
        elif token.capital and at > 1 and words[at - 1] == "the" and tokens[at - 2].capital and words[at]:
            # The Eighth is number 8 where it is written as part of a name.
            order = numbers.ordinal_word(token.form)
            out[-1:] = [out[-1], token] if order is None else [Token("number", f"#{order}")]
        else:
            out.append(token)
    return out


def _placed(tokens: list[Token]) -> list[Token]:
    """Chapter 3 and the third chapter become one."""
    if not any(token.kind in ("number", "code") or token.form in series.SHORT for token in tokens):
        return tokens
    forms = [token.form if token.kind in ("word", "number", "code") else "" for token in tokens]
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        found = series.place(forms, at)
        if found is None:
            out.append(tokens[at])
            at += 1
            continue
        said, taken = found
        written = {token.form.lower(): token for token in tokens[at : at + taken]}
        out.extend(Token("number", form) if form[0] == "#" else written.get(form, Token("word", form)) for form in said)
        at += taken
    return out


def _dated(tokens: list[Token]) -> list[Token]:
    """Day, month and year, which are several tokens, become one."""
    if not any(token.form in _MONTHS_THAT_ARE_WORDS or token.kind == "date" for token in tokens):
        return tokens
    forms = [token.form for token in tokens]
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        found = dates.at(forms, at)
        if found is None:
            out.append(tokens[at])
            at += 1
        else:
            out.append(Token("date", found[0], opens=tokens[at].opens))
            at += found[1]
    return out


@lru_cache(maxsize=4096)
def _words(piece: str, opens: bool, shouting: bool) -> tuple[Token, ...]:
    written = piece.replace("’", "'")
    # The country, not the pronoun.
    lower = "usa" if written == "US" and not shouting else written.lower()
    capital = written[0].isupper() and not opens and not shouting and lower not in ("i", "i'm", "i'd", "i'll", "i've")
    # An abbreviation is a name wherever it stands.
    capital = capital or (len(written) > 1 and written.isupper() and not shouting)
    if lower in CONTRACTIONS:
        forms: tuple[str, ...] = CONTRACTIONS[lower]
    elif lower.endswith("n't"):
        forms = (lower[:-3], "not")
    elif lower.endswith("'s"):
        forms = (lower[:-2], "is" if lower[:-2] in IS_AFTER else "'s")
    elif lower.endswith(("'re", "'ll", "'ve")):
        forms = (lower[:-3], {"'re": "are", "'ll": "will", "'ve": "have"}[lower[-3:]])
    elif lower.endswith("'d"):
        forms = (lower[:-2], "would")
    elif lower in ("two-factor", "two-step"):
        forms = ("2fa",)
    elif "-" in lower and all(numbers.read_words([part], 0) for part in lower.split("-")):
        forms = tuple(lower.split("-"))
    elif "-" in lower and lower.split("-")[0] != "one" and numbers.read_words([lower.split("-")[0]], 0):
        # A two-sentence summary has two sentences.
        forms = tuple(lower.split("-"))
    elif lower.endswith("-free"):
        forms = ("without", lower[:-5])
    else:
        forms = (lower,)
    first = SYNONYMS.get(forms[0], forms[0])
    return (Token("word", first, capital, opens), *(Token("word", form) for form in forms[1:]))


def _number(piece: str) -> Token:
    scaled = numbers.scaled(piece)
    if scaled is not None:
        return Token("number", scaled)
    if piece.lower() == "2fa":
        return Token("word", "2fa")
    parts = numbers.split_glued(piece)
    if parts is None:
        return Token("code", piece)
    digits, unit, ordinal = parts
    if ordinal:
        return Token("number", f"#{digits}th")
    return Token("number", numbers.canonical(digits, unit))


def _clock(piece: str) -> str:
    half = re.sub(r"[^apm]", "", piece.lower())
    if not half:
        hour, _, rest = piece.partition(":")
        return f"at {int(hour)}:{rest}"
    hour, _, rest = re.sub(r"[^0-9:]", "", piece).partition(":")
    return f"at {int(hour) % 12 + (12 if half[0] == 'p' else 0)}:{rest or '00'}"


def _merge(tokens: list[Token]) -> list[Token]:
    """Number words, units and fixed phrases, which span several words, become one token each."""
    forms = [token.form if token.kind == "word" else "" for token in tokens]
    merged: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "word" and token.form not in _MERGED:
            merged.append(token)
            at += 1
            continue
        following = forms[at + 1] if at + 1 < len(tokens) else ""
        taken = 1
        if token.kind == "word":
            spelled = numbers.read_words(forms, at)
            ordinal = numbers.ordinal_word(token.form)
            if spelled is not None:
                value, taken = spelled
                token = Token("number", f"#{value}")
            elif ordinal is not None:
                token = Token("number", f"#{ordinal}th")
            elif token.form == "half":
                token = Token("number", "#1/2")
                taken += (
                    following in ("a", "an") and at + 2 < len(tokens) and numbers.unit_of(forms[at + 2]) is not None
                )
            elif token.form in ("a", "an") and forms[at + 2 : at + 5] == ["and", "a", "half"]:
                # An hour and a half.
                if numbers.unit_of(following) is not None:
                    token, taken = Token("number", numbers.canonical("3/2", numbers.unit_of(following))), 5
            elif token.form == "twice":
                token = Token("number", "#2")
            elif token.form == "fall" and not _is_season(forms, at):
                pass
            elif token.form == "sat" and token.capital:
                token = Token("date", "saturday")
            elif token.form == "sun" and _is_sunday(tokens, at):
                token = Token("date", "sunday")
            elif token.form in _CALENDAR:
                token = Token("date", _CALENDAR[token.form], token.capital, token.opens)
            elif token.form in _MONTHS_THAT_ARE_WORDS and (
                (at and (token.capital or forms[at - 1] in ("in", "during")))
                or any(0 <= i < len(tokens) and tokens[i].kind == "number" for i in (at - 1, at + 1))
            ):
                token = Token("date", token.form, token.capital, token.opens)
            elif (token.form, following) in _PHRASES:
                token, taken = Token("word", _PHRASES[token.form, following], opens=token.opens), 2
        if token.kind == "number":
            if forms[at + taken : at + taken + 3] == ["and", "a", "half"]:
                token, taken = Token("number", numbers.plus_half(token.form)), taken + 3
            token, more = _with_unit(token, forms, at + taken)
            taken += more
        merged.append(token)
        at += taken
    return merged


def _is_sunday(tokens: list[Token], at: int) -> bool:
    """On Sun, Sun 8pm, Sun to Wed; sun 8pm, on every sun at 8pm, but: the sun at 8pm."""
    before = tokens[at - 1].form if at else ""
    behind = [token.form for token in tokens[at + 1 : at + 3]]
    timed = [form.startswith("at ") or _CALENDAR.get(form, "").endswith("day") for form in behind]
    if tokens[at].capital:
        return before in _BEFORE_DAY or any(timed)
    return any(timed[:1] if before not in ("every", "each", "on") else timed) and before != "the"


def _is_season(forms: list[str], at: int) -> bool:
    """In the fall, next fall; neither a fall nor falling asleep."""
    before = [word for word in forms[max(0, at - 2) : at] if word != "the"]
    return bool(before) and before[-1] in _BEFORE_SEASON and forms[at + 1 : at + 2] != ["of"]


_AGED = (["old"], ["olds"])
_OLDER = frozenset({"older", "younger", "age", "aged"})


def _with_unit(token: Token, forms: list[str], at: int) -> tuple[Token, int]:
    """Take a scale word and a unit that follow into the number."""
    digits = token.form[1:]
    if not digits.replace(".", "", 1).replace(",", "").replace("/", "", 1).isdigit():
        return token, 0
    more, scale = 0, 1
    if at < len(forms) and (factor := numbers.scale_of(forms[at])) is not None:
        scale, more = factor, 1
    if forms[at + more : at + more + 1] in (["degrees"], ["degree"]) and at + more + 1 < len(forms):
        more += forms[at + more + 1] in ("celsius", "fahrenheit", "f", "c")
    if forms[at + more : at + more + 2] == ["per", "cent"]:
        return Token("number", numbers.canonical(digits, "%", scale)), more + 2
    unit = numbers.unit_of(forms[at + more]) if at + more < len(forms) else None
    if (
        unit is not None
        and forms[at + more] in ("year", "years")
        and (forms[at + more + 1 : at + more + 2] in _AGED or not _OLDER.isdisjoint(forms[max(0, at - 4) : at]))
    ):
        # A child of ten is ten years old.
        return Token("number", numbers.canonical(digits, None, scale)), more + 1
    if unit is not None:
        more += 1
    return Token("number", numbers.canonical(digits, unit, scale)), more
