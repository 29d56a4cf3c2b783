"""A sequence: the tokens known so far, how many of them have been computed, and where their keys and values lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.loading import Load
from headgate.engine.request import ErrorCause, Finish, FinishReason, Request, TokenScore
from headgate.engine.sampling.grammar import Guide
from headgate.engine.sampling.processors import SamplingRow
from headgate.engine.speculation.draft import Draft
from headgate.engine.speculation.lookup import Lookup
from headgate.engine.text.pictures import parted, told_apart


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice of a request on its way through the engine. Times are seconds of the engine's monotonic clock."""

    request: Request
    choice: int
    arrival: int
    """Order of submission, over all requests of the model."""
    tokens: list[int]
    """Prompt, then output; or the prompt and, but for its last token, the continuation to be scored."""
    limit: int
    """Most tokens, prompt included."""
    ends: frozenset[int]
    """Tokens after which it ends."""
    table: BlockTable
    noise: int
    """Seed of this sequence's draws when the request names none."""
    adapter: int = 0
    """Number of the adapter that its rows have; 0: none."""
    leader: Sequence | None = None
    """The sibling whose prompt pass this one waits for, to share its blocks."""
    load: Load | None = None
    """What this one waits for, or has waited for since it was last in the queue."""
    computed: int = 0
    cached: int = 0
    """Prompt tokens found in the prefix cache at first admission."""
    admitted: bool = False
    done: bool = False
    preemptions: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    queue_s: float = 0.0
    """From submission to its start; known from then on."""
    first_token_at: float | None = None
    last_token_at: float = 0.0
    """Known from the first one on."""
    device_s: float = 0.0
    scores: list[TokenScore] = field(default_factory=list)
    """Of the leading tokens of the continuation that is scored."""
    row: SamplingRow | None = None
    """What the sampler keeps of it; made when it is first needed, which greedy decoding never does."""
    guide: Guide | None = None
    """Its way through the grammar of the request. It goes with the tokens, so that a preemption changes nothing."""
    draft: Draft | None = None
    """What it may go on with, where that can be checked several tokens at a time."""
    lookup: Lookup | None = None
    """The same by what was said before, where there is no draft."""
    stream: int | None = None
    """What the keys of its draws begin with, as int64; made when it is first needed, likewise."""
    seen: list[int] | None = field(init=False)
    """The prompt as the prefix cache knows it, where it has pictures."""
    prompt_length: int = field(init=False)
    plain: bool = field(init=False)
    """Whether the likeliest token is all there is to know of its settings, unless it is `restrained`."""
    restrains: bool = field(init=False)
    """Whether the first token of its output may not be just any. A grammar says what it may be."""
    direct: bool = field(init=False)
    """Whether its tokens follow from the logits of the model alone, without an adapter, and from its grammar, and are
    all there is to report."""
    generates: bool = field(init=False)
    """Whether it continues its prompt, instead of being scored or probed."""
    background: bool = field(init=False)
    """Whether nobody waits for it."""
    rank: int = field(init=False)
    """Of those that somebody waits for: the lower ones come first."""

    def __post_init__(self) -> None:
        request = self.request
        self.seen = told_apart(request.prompt, request.sights) if request.sights else None
        self.prompt_length = len(request.prompt)
        self.plain = self.request.sampling.plain and self.guide is None
        self.restrains = bool(self.request.sampling.begin_suppress_tokens) and self.guide is None
        self.generates = not self.request.score and not self.request.probe
        self.direct = self.request.sampling.direct and self.generates and not self.adapter
        self.background = self.request.priority == "background"
        self.rank = 0 if self.request.priority == "interactive" else 1
        if self.request.draft and self.checkable:
            self.draft = Draft(self.request.draft, self.prompt_length)

    @property
    def restrained(self) -> bool:
        """Whether its next token is one that it `restrains`."""
        return self.restrains and len(self.tokens) == self.prompt_length

    @property
    def checkable(self) -> bool:
        """Whether what is chosen behind a token depends on the tokens before it by the model's logits alone."""
        return self.generates and not self.background and self.guide is None and not self.request.sampling.looks_back

    @property
    def gap(self) -> int:
        """Known tokens that are not computed yet."""
        return len(self.tokens) - self.computed

    def parted(self, granted: int, count: int) -> int:
        """Of its tokens behind those that a step has already, as many of `count` as it may have: see `parted`."""
        start = self.computed + granted
        return parted(self.request.sights, start, start + count) - start

    @property
    def scores_from(self) -> int:
        """First position whose logits a score is still to be read from."""
        return self.prompt_length - 1 + len(self.scores)

    @property
    def known(self) -> list[int]:
        """Its tokens as the prefix cache knows them, which tells pictures apart."""
        return self.tokens if self.seen is None else [*self.seen, *self.output]

    @property
    def reusable(self) -> list[int]:
        """Of these those whose cached keys and values will do; the last of them is computed in any case."""
        return self.known[: self.scores_from + 1] if self.request.score else self.known

    @property
    def output(self) -> list[int]:
        """Generated tokens."""
        return self.tokens[self.prompt_length :]

    @property
    def ready(self) -> bool:
        """Whether it may be admitted: it waits for no keys and values, and for no sibling's prompt pass."""
        if self.load is not None and not self.load.done:
            return False
        leader = self.leader
        return leader is None or leader.done or leader.computed >= leader.prompt_length

    @property
    def shareable(self) -> int:
        """Leading tokens that a sibling computes or has computed, while this one waits."""
        leader = self.leader
        if leader is None or self.admitted or (leader.done and leader.computed < leader.prompt_length):
            return 0
        return self.prompt_length

    def admit(self, cached: int) -> None:
        """Out of the queue: so many of its tokens were computed before."""
        self.computed = cached
        if not self.preemptions:
            self.cached = cached
        self.admitted = True

    def reset(self) -> None:
        """Back to the queue: its blocks were taken, so that all of it must be computed again."""
        self.admitted = False
        self.load = None
        self.computed = 0
        self.preemptions += 1

    def finish(
        self, reason: FinishReason, now: float, error: str | None = None, cause: ErrorCause | None = None
    ) -> Finish:
        """The account of it as it ends."""
        started = now if self.started_at is None else self.started_at
        first = now if self.first_token_at is None else self.first_token_at
        return Finish(
            reason=reason,
            prompt_tokens=self.prompt_length,
            completion_tokens=0 if self.request.score else len(self.tokens) - self.prompt_length,
            cached_tokens=self.cached,
            queue_s=started - self.submitted_at,
            prefill_s=first - started,
            decode_s=now - first,
            device_s=self.device_s,
            accepted=0 if self.draft is None else self.draft.accepted,
            rejected=0 if self.draft is None else self.draft.rejected,
            error=error,
            cause=cause,
        )
