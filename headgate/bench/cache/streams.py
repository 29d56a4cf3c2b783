"""Streams of requests whose right answers are known: popular and rare ones, drift, bursts, tenants, near misses."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.bench.cache.edits import Differences, edit_types, edited, one_edit_away
from headgate.bench.cache.intents import Share
from headgate.bench.cache.slots import EDIT_TYPES, EditType
from headgate.bench.cache.wording import Piece, Question, Wording, draw_wording, join, pieces

Kind = Literal["natural", "heavy", "adversarial"]

_TRIES = 60
_OPENINGS = ("hi, ", "hello, ", "hey, ", "quick question: ", "sorry to bother you, ", "one more thing: ", "ok, ")
_ENDINGS = (" Thanks!", " Thank you", " Thanks in advance", " thx")


@dataclass(frozen=True, slots=True)
class Item:
    """A request.

    Attributes:
        tenant: whose it is; answers are never shared between tenants.
        text: what is asked.
        key: the semantic key; one answer is right for two requests exactly if their keys are equal.
        edit: where this tenant asks for the key for the first time and has asked for one a single edit away before,
            the type of that edit; None for all other requests.
        time: seconds since the stream's start; never falls.
    """

    tenant: str
    text: str
    key: str
    edit: EditType | None
    time: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """The shape of a stream. Shares and chances are from 0 to 1, per request.

    Attributes:
        requests: items in the stream, repeats in bursts included.
        tenants: the first is asked for most, the n-th 1/n as often. All draw on one set of popular questions, each with
            its own order of popularity.
        popular: questions in that set.
        zipf: the popularity of the n-th is proportional to n to the power of -zipf.
        one_hit: share of requests with a question that nobody asks again on purpose.
        near_miss: share of requests one edit away from something the tenant asked before.
        same_words: share of the near misses that repeat a wording of the question they are close to.
        verbatim: chance that a question asked again comes in a text it came in before.
        turnover: chance that a popular question gives its place to a new one: drift.
        burst: chance that a request is followed by 1 to 7 more of the same text within a second.
        noise: share of texts with small letters, a missing mark, a typo, or a greeting or thanks.
        gap_s: mean seconds between requests outside bursts; the gaps are exponential.
    """

    requests: int = 3000
    tenants: int = 3
    popular: int = 150
    zipf: float = 0.9
    one_hit: float = 0.25
    near_miss: float = 0.02
    same_words: float = 0.5
    verbatim: float = 0.3
    turnover: float = 0.01
    burst: float = 0.01
    noise: float = 0.25
    gap_s: float = 1.0


TRAFFIC: Mapping[Kind, Traffic] = {
    "natural": Traffic(near_miss=0.02),
    "heavy": Traffic(near_miss=0.2),
    "adversarial": Traffic(near_miss=0.5, one_hit=0.1),
}
"""The three mixes that are reported."""


def stream(traffic: Traffic, share: Share, seed: int) -> list[Item]:
    """The requests in order of time; equal for equal arguments.

    Within one stream a text always has the same key, whatever its letters' case. New questions that would be one edit
    away from an old one by chance are drawn again where the split is large enough, so that `near_miss` is what it says;
    where one stays, it carries its edit type like any other.
    """
    return _Source(traffic, share, random.Random(f"{seed}/{share.split}/stream")).items()


class _Source:
    def __init__(self, traffic: Traffic, share: Share, rng: random.Random) -> None:
        self._traffic, self._share, self._rng = traffic, share, rng
        self._differences = Differences()
        self._key_of_text: dict[str, str] = {}
        self._pool_patterns: set[str] = set()
        names = [f"tenant-{number + 1}" for number in range(traffic.tenants)]
        self._tenants = [_Tenant(name, rng.sample(range(traffic.popular), traffic.popular)) for name in names]
        self._pool = [self._fresh(None) for _ in range(traffic.popular)]
        self._tenant_weights = [1.0 / (rank + 1) for rank in range(traffic.tenants)]
        self._ranks = range(traffic.popular)
        self._rank_weights = list(itertools.accumulate((rank + 1) ** -traffic.zipf for rank in self._ranks))

    def items(self) -> list[Item]:
        traffic, rng = self._traffic, self._rng
        made: list[Item] = []
        now = 0.0
        while len(made) < traffic.requests:
            now += rng.expovariate(1.0 / traffic.gap_s)
            tenant = rng.choices(self._tenants, self._tenant_weights)[0]
            item = self._request(tenant, now)
            made.append(item)
            if rng.random() < traffic.burst:
                offsets = sorted(rng.random() for _ in range(rng.randint(1, 7)))
                made += [Item(item.tenant, item.text, item.key, None, now + offset) for offset in offsets]
                now += offsets[-1]
            if rng.random() < traffic.turnover:
                self._pool[rng.randrange(traffic.popular)] = self._fresh(None)
        return made[: traffic.requests]

    def _request(self, tenant: _Tenant, now: float) -> Item:
        traffic, rng = self._traffic, self._rng
        kind = rng.random()
        if kind < traffic.near_miss:
            near = self._near_miss(tenant)
            if near is not None:
                return self._item(tenant, near[0], near[1], now)
        elif kind < traffic.near_miss + traffic.one_hit:
            return self._item(tenant, self._fresh(tenant), None, now)
        rank = rng.choices(self._ranks, cum_weights=self._rank_weights)[0]
        return self._item(tenant, self._pool[tenant.order[rank]], None, now)

    def _near_miss(self, tenant: _Tenant) -> tuple[Question, Wording | None] | None:
        """A question new to the tenant, one edit from an old one; the old one's wording if it is to be repeated."""
        rng = self._rng
        # The type first: otherwise the types that every intent allows would be nearly all.
        for kind in rng.sample(EDIT_TYPES, len(EDIT_TYPES)):
            asked = tenant.allowing.get(kind, ())
            for _ in range(min(len(asked), _TRIES // 10)):
                old = rng.choice(asked)
                question = edited(old.question, kind, self._share, rng)
                if question is not None and question.key not in tenant.asked:
                    again = rng.random() < self._traffic.same_words
                    return question, rng.choice(old.wordings) if again else None
        return None

    def _fresh(self, tenant: _Tenant | None) -> Question:
        """A question far from all popular ones and all that the tenant has asked, as far as the tries allow."""
        question = self._draw()
        for _ in range(_TRIES):
            patterns = one_edit_away(question)
            if self._pool_patterns.isdisjoint(patterns) and (
                tenant is None or tenant.patterns.keys().isdisjoint(patterns)
            ):
                break
            question = self._draw()
        if tenant is None:
            self._pool_patterns.update(one_edit_away(question))
        return question

    def _draw(self) -> Question:
        return self._share.draw(self._rng.choice(self._share.intents), self._rng)

    def _item(self, tenant: _Tenant, question: Question, wording: Wording | None, now: float) -> Item:
        key = question.key
        edit: EditType | None = None
        known = tenant.asked.get(key)
        if known is None:
            edit = tenant.nearest_edit(question, self._differences)
            known = tenant.remember(question)
        elif wording is None and self._rng.random() < self._traffic.verbatim:
            return Item(tenant.name, self._rng.choice(known.texts), key, edit, now)
        for _ in range(_TRIES):
            chosen = wording or draw_wording(question.intent, self._rng)
            parts = pieces(question, chosen)
            text = noisy(parts, self._rng) if self._rng.random() < self._traffic.noise else join(parts)
            if self._key_of_text.setdefault(text.lower(), key) == key:
                known.wordings.append(chosen)
                known.texts.append(text)
                return Item(tenant.name, text, key, edit, now)
            wording = None
        raise ValueError(f"every wording of {key!r} also words another question; mend its intent")


@dataclass(slots=True)
class _Asked:
    question: Question
    wordings: list[Wording]
    texts: list[str]


class _Tenant:
    """What one tenant has asked so far."""

    def __init__(self, name: str, order: Sequence[int]) -> None:
        self.name = name
        self.order = order
        self.asked: dict[str, _Asked] = {}
        self.patterns: dict[str, str] = {}
        self.allowing: dict[EditType, list[_Asked]] = {}

    def remember(self, question: Question) -> _Asked:
        known = self.asked[question.key] = _Asked(question, [], [])
        for pattern in one_edit_away(question):
            self.patterns[pattern] = question.key
        for kind in edit_types(question.intent):
            self.allowing.setdefault(kind, []).append(known)
        return known

    def nearest_edit(self, question: Question, differences: Differences) -> EditType | None:
        for pattern in one_edit_away(question):
            old = self.patterns.get(pattern)
            if old is not None and (kind := differences.between(old, question.key)) is not None:
                return kind
        return None


def noisy(parts: list[Piece], rng: random.Random) -> str:
    """The text as someone in a hurry or in a chatty mood would write it; words of slots stay as they are."""
    kind = rng.choice(("small letters", "no mark", "typo", "opening", "ending"))
    if kind == "small letters":
        return join(parts).lower()
    if kind == "no mark":
        return join(parts).rstrip("?.!")
    if kind == "typo":
        return join(_with_typo(parts, rng))
    if kind == "opening":
        return join(parts, rng.choice(_OPENINGS))
    text = join(parts)
    return f"{text}{'' if text[-1] in '?.!' else '.'}{rng.choice(_ENDINGS)}"


def _with_typo(parts: list[Piece], rng: random.Random) -> list[Piece]:
    """Two neighbouring letters exchanged inside a long word that belongs to no slot."""
    places = [
        (index, at)
        for index, part in enumerate(parts)
        if not part.slot
        for at in range(2, len(part.text) - 3)
        if part.text[at - 2 : at + 4].isalpha() and part.text[at] != part.text[at + 1]
    ]
    if not places:
        return parts
    index, at = rng.choice(places)
    text = parts[index].text
    typo = Piece(text[:at] + text[at + 1] + text[at] + text[at + 2 :], slot=False)
    return [*parts[:index], typo, *parts[index + 1 :]]
