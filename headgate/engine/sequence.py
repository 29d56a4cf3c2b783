"""A sequence: the tokens known so far, how many of them have been computed, and where their keys and values lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.engine.kv.tables import BlockTable
from headgate.engine.request import Request


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice of a request on its way through the engine. Times are seconds of the engine's monotonic clock."""

    request: Request
    choice: int
    arrival: int
    """Order of submission, over all requests of the model."""
    tokens: list[int]
    """Prompt, then output."""
    limit: int
    """Most tokens, prompt included."""
    table: BlockTable
    noise: int
    """Seed of this sequence's draws when the request names none."""
    leader: Sequence | None = None
    """The sibling whose prompt pass this one waits for, to share its blocks."""
    computed: int = 0
    cached: int = 0
    """Prompt tokens found in the prefix cache at first admission."""
    admitted: bool = False
    done: bool = False
    preemptions: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    first_token_at: float | None = None
    device_s: float = 0.0
    prompt_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.request.prompt)

    @property
    def gap(self) -> int:
        """Known tokens that are not computed yet."""
        return len(self.tokens) - self.computed

    @property
    def output(self) -> list[int]:
        """Generated tokens."""
        return self.tokens[self.prompt_length :]

    @property
    def ready(self) -> bool:
        """Whether it may be admitted: it waits for no sibling's prompt pass."""
        leader = self.leader
        return leader is None or leader.done or leader.computed >= leader.prompt_length
