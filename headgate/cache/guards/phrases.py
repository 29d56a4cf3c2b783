"""Equivalent ways to put a question, each brought to one form.

The texts are as `meaning` writes them: base forms, articles gone, one space behind each word. `how do I`, `what is the
best way to` and `I need help` all become `howto`. The rules are in english/openings.txt, filed under the word that a
text begins with, so that few of them are tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headgate.cache.guards.english import lines

_LISTS = MappingProxyType(
    {
        "one": "(?:i|we|one)",
        "wh": "(?=(?:(?:in|at|on|from|by|for|to|of) (?:what|which) |what|how|why|when|where|who|which|whether|if)\\b)",
        "often": "(?:usually |normally |generally |typically |commonly |really )?",
        "adj": "(?:good |best |right |correct |proper |easy |easier |easiest |simple |simplest |most effective "
        "|most efficient |effective |efficient |recommended |possible |some |common |different |main "
        "|exact |usual )*",
        "steps": "(?:way|method|procedure|process|step|instruction|approach|technique)",
        "to": "(?:to|for|of|that i can|i can|i should take to|i need to take to|i have to take to|involve in|require to"
        "|need to|i can use to)",
    }
)
"""What {one}, {often} ... stand for in openings.txt."""


def _phrases() -> Mapping[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]:
    table: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for line in lines("phrases.txt"):
        phrase, word = (side.split() for side in line.split("=>"))
        table.setdefault(phrase[0], []).append((tuple(phrase), tuple(word)))
    return MappingProxyType({head: tuple(sorted(rules, key=lambda r: -len(r[0]))) for head, rules in table.items()})


_SHORTHAND = (
    (re.compile(r"<(\w):\*>"), r"(?P<\1>\\S+)"),
    (re.compile(r"\(<(\w)>"), r"(?P<\1>"),
    (re.compile(r"(?<!\?P)<(\w)>"), r"(?P<\1>.+?)"),
    (re.compile(r"\((?!\?)"), "(?:"),
    (re.compile(r"(?<![.)])\*"), r"\\S+"),
)


def _pattern(written: str) -> str:
    """A rule of openings.txt as a regular expression."""
    for name, words in _LISTS.items():
        written = written.replace(f"{{{name}}}", words)
    for short, meant in _SHORTHAND:
        written = short.sub(meant, written)
    return written


def _sections() -> Mapping[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in lines("openings.txt"):
        if line.startswith("["):
            rules = sections[line.strip("[]")] = []
        else:
            rules.append(line)
    return sections


def _filed(sections: Mapping[str, list[str]]) -> Mapping[str, tuple[tuple[re.Pattern[str], str], ...]]:
    """The rules by the first word of the texts they apply to."""
    table: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for heads, rules in sections.items():
        if heads in ("courtesy", "frames", "endings"):
            continue
        for rule in rules:
            pattern, _, form = rule.partition("=>")
            for head in heads.split():
                table.setdefault(head, []).append((re.compile(_pattern(pattern)), f"{form.strip()} "))
    return MappingProxyType({head: tuple(rules) for head, rules in table.items()})


def _any_of(rules: Sequence[str]) -> str:
    return "(?:" + "|".join(_pattern(rule) for rule in rules) + ")"


_SECTIONS = _sections()
_BY_HEAD = _filed(_SECTIONS)
_PHRASES_BY_HEAD = _phrases()
# Whole words: what begins with `so` may be solved.
_FRAME = re.compile(_any_of([*_SECTIONS["courtesy"], *_SECTIONS["frames"]]) + "(?:(?<= )| )")
_PLAIN_FRAME = re.compile(_any_of(_SECTIONS["frames"]) + "(?:(?<= )| )")
_ENDING = re.compile(f" {_any_of(_SECTIONS['endings'])} $")
# Turn the light on: turn on the light
_SPLIT = re.compile(
    r"\b(?:turn|switch) (?P<x>(?:(?!on |off |left |right )\S+ ){1,3}?)(?P<way>on|off) "
    r"(?=$|(?:in|for|from|when|at|after) )"
)


def _joined(match: re.Match[str]) -> str:
    return f"{'enable' if match['way'] == 'on' else 'disable'} {match['x']}"


# In git, how can I ...; my phone is dead, what should I do
_MOVED = re.compile(
    r"^(?P<place>(?:in|on|for|with|from|at) (?:\S+ ){1,3}?)"
    r"(?P<wh>(?:how|what|where|why|which|who) (?=do|be|can|could|should|to|will))(?P<rest>.*)$"
)
_AFTERTHOUGHT = re.compile(
    r"^(?P<x>.+?) (?:now |so )?what (?:should|can|could|do|must) (?:i|we) (?:have to |need to )?(?:do )?$"
)


def rewritten(atoms: Sequence[str], *, courtesy: bool) -> list[str]:
    """A text in base forms, brought to its one form; with `courtesy` polite words at its ends are taken off."""
    text = _SPLIT.sub(_joined, " ".join(_with_phrases(atoms)) + " ")
    frame = _FRAME if courtesy else _PLAIN_FRAME
    while (match := frame.match(text)) and len(text) - match.end() > 3:
        text = text[match.end() :].lstrip()
    while courtesy and (match := _ENDING.search(text)) and match.start() > 1:
        text = text[: match.start()] + " "
    text = _MOVED.sub(r"\g<wh>\g<rest>\g<place>", text)
    if (match := _AFTERTHOUGHT.match(text)) is not None:
        text = f"whatdo if {match['x']} "
    for _ in range(4):
        changed = _once(text)
        if changed == text:
            break
        text = changed
    return text.split()


def _once(text: str) -> str:
    head, _, rest = text.partition(" ")
    for pattern, form in _BY_HEAD.get(head, ()):
        match = pattern.match(rest)
        if match is not None:
            found = {name: (value or "").strip() for name, value in match.groupdict().items()}
            if found.get("r"):
                found["r"] = f" {found['r']} "
            return re.sub(" +", " ", form.format(**found) + rest[match.end() :])
    return text


def _with_phrases(atoms: Sequence[str]) -> list[str]:
    out: list[str] = []
    at = 0
    while at < len(atoms):
        for phrase, word in _PHRASES_BY_HEAD.get(atoms[at], ()):
            if tuple(atoms[at : at + len(phrase)]) == phrase:
                out.extend(word)
                at += len(phrase)
                break
        else:
            out.append(atoms[at])
            at += 1
    return out
