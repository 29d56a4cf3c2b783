"""What a lane has done since its start, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from headgate.engine.lanes.stats import ModelStats
from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence


@dataclass(slots=True)
class LaneCounts:
    """Counted by the step thread.

    Attributes:
        forward_before: seconds of the runners before the present one.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    failed_steps: int = 0
    short_steps: int = 0
    step_seconds: float = 0.0
    background_seconds: float = 0.0
    forward_before: float = 0.0
    pictures: int = 0
    picture_seconds: float = 0.0

    def stepped(self, chunks: Seq[Chunk], total: int, steps: int, seconds: float) -> None:
        """So many steps of these chunks, which have `total` tokens, took so many seconds: each has its share."""
        self.steps += steps
        self.step_seconds += seconds
        for chunk in chunks:
            sequence = chunk.sequence
            share = seconds * chunk.count / total
            sequence.device_s += share
            if sequence.background:
                self.background_seconds += share
            if chunk.start < sequence.prompt_length:
                self.prompt_tokens += min(chunk.count, sequence.prompt_length - chunk.start)

    def looked(self, sequence: Sequence, seconds: float) -> None:
        """A picture of the sequence was looked at for so many seconds."""
        self.pictures += 1
        self.picture_seconds += seconds
        self.step_seconds += seconds
        sequence.device_s += seconds
        if sequence.background:
            self.background_seconds += seconds

    def stats(self, scheduler: Scheduler, runner: Runner | None, guessed: Mapping[str, tuple[int, int]]) -> ModelStats:
        """Current figures; consistent to within one step when read from another thread. `guessed`: see Proposing."""
        tables, tiers = scheduler.tables, scheduler.tiers
        pages = tables.pages
        return ModelStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            pending_tokens=scheduler.pending_tokens,
            kv_blocks_used=tables.total_blocks - tables.free_blocks,
            kv_blocks_total=tables.total_blocks,
            kv_bytes=0 if runner is None else runner.kv_bytes,
            prefix_queries=scheduler.queried_tokens,
            prefix_hits=scheduler.hit_tokens,
            preemptions=scheduler.preemptions,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            steps=self.steps,
            step_seconds=self.step_seconds,
            forward_seconds=self.forward_before + (0.0 if runner is None else runner.forward_seconds),
            failed_steps=self.failed_steps,
            short_steps=self.short_steps,
            background=len(scheduler.background),
            background_preemptions=scheduler.background.preemptions,
            background_seconds=self.background_seconds,
            pinned_blocks=scheduler.pins.blocks,
            kv_pages_used=0 if pages is None else pages.total - pages.free,
            kv_pages_total=0 if pages is None else pages.total,
            pictures=self.pictures,
            picture_seconds=self.picture_seconds,
            guessed={**guessed},
            unrecorded=0 if runner is None else runner.unrecorded,
            tiers=None if tiers is None else tiers.stats,
        )
