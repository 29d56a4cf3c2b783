"""What the answer cache is asked for a request: whether it takes part, under which key, and for how long."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Literal

import msgspec

from headgate.cache.fingerprint import CacheQuery, Fingerprint, Fingerprinter, canonical_json
from headgate.cache.freshness import time_sensitive
from headgate.gateway.road.attachments import Piece
from headgate.gateway.road.destinations import Destination
from headgate.gateway.road.request import ChatRequest, Message, Sampling
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import TeamCacheSection

KEY_EPOCH = "5"
"""Raised when the key's contents change their meaning, so that a shared store never mixes the two."""

Share = Literal["team", "user"]

_NO_MATTER = (
    "model", "stream", "include_usage", "cache", "user", "session", "service_tier", "priority", "metadata", "draft",
    "arm",
)  # fmt: skip
"""Fields of a request that do not change its answer, or that the key has elsewhere. All others are in it."""
_GREEDY_NO_MATTER = ("temperature", "top_p", "top_k", "min_p", "seed")
"""Fields of the sampling that change nothing where the likeliest token is taken."""
_END = 4000
"""Characters of a long text's beginning and end that tell whether it asks about now."""


def _all_but(kind: type, *names: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in names)


_MATTERS = _all_but(ChatRequest, *_NO_MATTER, "messages", "sampling")
_SAMPLING, _GREEDY = _all_but(Sampling), _all_but(Sampling, *_GREEDY_NO_MATTER)
_TURN = _all_but(Message, "content")
_matters, _turn = attrgetter(*_MATTERS), attrgetter(*_TURN)
_sampling, _greedy = attrgetter(*_SAMPLING), attrgetter(*_GREEDY)
# Values go into the key without their names, so that it has to be said once which they are.
_FORMS = {greedy: " ".join([*_MATTERS, "|", *(_GREEDY if greedy else _SAMPLING), "|", *_TURN]) for greedy in (0, 1)}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Which answers are kept, for how long, and who shares them. Times are seconds."""

    ttl_s: float = 3600.0
    time_sensitive_ttl_s: float = 60.0
    """For questions about now, such as those with "today" or "latest"; 0 keeps none of them."""
    max_temperature: float = 0.0
    """Up to here answers are kept; above, those with a seed and where the client asks for it."""
    tool_results: bool = False
    """Whether answers to conversations with results of tools are kept without the client's asking."""
    normalize_text: bool = False
    """Whether texts that differ in white space or in how Unicode writes a letter are the same request."""
    epoch: str = ""
    """Part of every key: another epoch finds none of the older answers."""
    share: Share = "team"
    """Whether the keys of a team share answers, or each key and end user has its own."""
    wait_s: float = 1.0
    """Longest wait for the answer to a similar question that is being made; 0 waits for none."""

    def of(self, team: TeamCacheSection) -> CachePolicy:
        """What holds for a team that has something otherwise."""
        if team == _AS_ALL:
            return self
        return replace(self, share=team.share or self.share, ttl_s=self.ttl_s if team.ttl_s is None else team.ttl_s)


_AS_ALL = TeamCacheSection()


class Question(msgspec.Struct, frozen=True):
    """A request as the cache is asked for it.

    Attributes:
        query: the request in the cache's terms.
        fingerprint: its keys.
        may_read: a stored answer, or one being made for somebody else, may be served.
        findable: the answer may be served to the same question in other words.
        semantic: an answer to the same question in other words will do.
        max_age_s: oldest answer that will do; None sets no bound.
        max_error: largest share of wrong answers the client or its team accepts; None leaves it to the configuration.
        ttl_s: how long the answer is kept.
        tags: what it can be forgotten by.
        team_tag: the one of the team, within which authors have their share.
        author: whose entry it becomes.
        revisions: of those that may answer, by their ids.
    """

    query: CacheQuery
    fingerprint: Fingerprint
    may_read: bool
    findable: bool
    semantic: bool
    max_age_s: float | None
    max_error: float | None
    ttl_s: float
    tags: frozenset[str]
    team_tag: str
    author: str
    revisions: dict[str, str] = {}

    def of(self, destination: Destination) -> bool:
        """Whether it was put of a destination as it is: an id may have come to be another adapter's meanwhile."""
        return self.revisions.get(destination.id, destination.revision) == destination.revision

    @property
    def flight_key(self) -> str:
        """Requests of one key may share a generation, and what the look-up before it finds."""
        return f"{self.fingerprint.exact_key}:{self.max_age_s}:{self.max_error}"


@dataclass(frozen=True, slots=True)
class Bypass:
    """The cache has no part in a request."""

    reason: str
    """no_store, off, random, tools, url or time_sensitive."""


def question_of(
    request: ChatRequest,
    principal: Principal,
    candidates: Sequence[Destination],
    policy: CachePolicy,
    fingerprinter: Fingerprinter,
    variant: str = "",
) -> Question | Bypass:
    """What to ask the cache, or why not.

    Args:
        request: the request.
        principal: whose it is; answers never cross teams.
        candidates: where it could be generated.
        policy: which answers are kept, unless the principal's team has it otherwise.
        fingerprinter: makes the keys.
        variant: names the routing policy, where it is another than the team's.
    """
    control, own = request.cache, principal.policy.cache
    policy = policy.of(own)
    # Where the destinations' defaults differ, the most random one decides.
    temperature = max(d.temperature(request.sampling) for d in candidates)
    greedy = temperature == 0
    if own.enabled is False:
        return Bypass("off")
    if control.no_store:
        return Bypass("no_store")
    if temperature > policy.max_temperature and request.sampling.seed is None and not control.asked:
        return Bypass("random")
    if not (policy.tool_results or control.asked) and any(m.role == "tool" for m in request.messages):
        return Bypass("tools")
    attachments = request.attachments
    # What is behind a URL may be another picture tomorrow.
    if not control.asked and any(attachment.remote for attachment in attachments):
        return Bypass("url")
    of_now = _of_now(request)
    ttl_s = min(policy.ttl_s, policy.time_sensitive_ttl_s) if of_now else policy.ttl_s
    if ttl_s <= 0:
        return Bypass("time_sensitive")
    text = request.last_user_text
    # Which function is called, and with what, hangs on every word; and who compares texts sees no pictures.
    alone = not request.tools and not attachments
    findable = greedy and text is not None and request.logprobs is None and not of_now and alone
    query = CacheQuery(
        scope=_scope(request, principal, policy),
        model=request.model,
        revision=_revision(candidates, policy.epoch, variant),
        context=_context(request, principal.policy.limits.max_context_tokens, greedy=greedy),
        text=normalized(text) if text and policy.normalize_text else text or "",
    )
    team = principal.team
    team_tag = fingerprinter.scope_tag(team)
    tags = {team_tag, *(fingerprinter.tag(team, tag) for tag in control.tags)}
    if principal.key_id is not None:
        tags.add(fingerprinter.author_tag(team, principal.key_id))
    accepted = [share for share in (control.max_error, own.max_error) if share is not None]
    max_error = min(accepted, default=None)
    return Question(
        query,
        fingerprinter.fingerprint(query),
        may_read=not control.no_cache,
        findable=findable,
        semantic=findable and max_error != 0,
        max_age_s=control.max_age_s,
        max_error=max_error,
        ttl_s=ttl_s,
        tags=frozenset(tags),
        team_tag=team_tag,
        author=principal.key_id or "",
        revisions={d.id: d.revision for d in candidates},
    )


def normalized(text: str) -> str:
    """The text in Unicode's composed form (NFC), with single spaces for all white space and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _of_now(request: ChatRequest) -> bool:
    """Whether it asks about now. An earlier turn counts: "and in Spain?" asks what the turn before asked.

    What is asked of a long text stands before or after it; what is between is not read, as others would wait meanwhile.
    """
    texts = [m.content for m in request.messages if m.role == "user" and m.content is not None]
    if isinstance(request.prompt, str):
        texts.append(request.prompt)
    return any(time_sensitive(t if len(t) <= 2 * _END else f"{t[:_END]}\n{t[-_END:]}") for t in texts)


def _scope(request: ChatRequest, principal: Principal, policy: CachePolicy) -> str:
    if policy.share == "team":
        return principal.team
    # No team is called so: their names begin with a letter or a digit.
    return canonical_json([principal.team, principal.key_id, request.user]).decode("utf-8", "surrogatepass")


def _revision(candidates: Sequence[Destination], epoch: str, variant: str) -> str:
    parts = [KEY_EPOCH, epoch, *sorted(f"{d.id}={d.revision}" for d in candidates), *([variant] if variant else [])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _context(request: ChatRequest, most_tokens: int | None, *, greedy: bool) -> bytes:
    """Everything that can change the answer, but for the last user text; equal for equal requests only.

    `most_tokens`: of prompt and answer together, where the key has such a limit: it ends an answer of open length.

    Fields have types, so that equal numbers are written alike, but for those in schemas: there, as in the order of
    properties, a model reads what is written.
    """
    sampling, messages = (_greedy if greedy else _sampling)(request.sampling), request.messages
    attached = any(m.parts for m in messages)
    if attached:
        messages = tuple(replace(m, parts=tuple(map(_unplaced, m.parts))) for m in messages)
    told = (_FORMS[greedy], most_tokens, _matters(request), sampling, messages)
    if attached:
        # Megabytes are not held beside the request for as long as that takes.
        return hashlib.sha256(_encode(told)).digest()
    if request.last_user_text is None:
        return _encode(told)
    return _encode((*told[:-1], messages[:-1], _turn(messages[-1])))


def _unplaced(piece: Piece) -> Piece:
    """A piece without the place that it was written at, which no model sees."""
    return piece if isinstance(piece, str) else msgspec.structs.replace(piece, place="")
