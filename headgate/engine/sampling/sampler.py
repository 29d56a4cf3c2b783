"""The sampler: logits of a step in, one token per row out.

Rows are sampled in groups that need the same work: greedy rows take an argmax; the others are drawn by the kernels, or
where these have nothing for it by stock operators: rows without top_k and top_p race the whole vocabulary, and the
others only their likeliest tokens. A row's group depends on its own settings alone, so its token does not depend on its
neighbours. All draws are Gumbel-max: the largest of log-probability plus noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.request import TokenLogprob
from headgate.engine.sampling.logprobs import measure, read
from headgate.engine.sampling.noise import gumbel, row_key
from headgate.engine.sampling.processors import SamplingRow, process
from headgate.engine.sampling.truncation import drop_unlikely, scaled, truncate
from headgate.engine.sampling.upload import upload

# How many of the likeliest tokens a truncated row looks at: the first width its top_k fits in.
_WIDTHS = (64, 1024)

__all__ = ["NonFiniteLogits", "SampledTokens", "Sampler", "SamplingRow"]


class NonFiniteLogits(ValueError):
    """Logits with a NaN or +inf, or with -inf only. `rows` are their indices in the batch; the other rows are sound."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(f"logits of rows {list(rows)} are not finite; nothing can be sampled from them")
        self.rows = tuple(rows)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token per row, and its log-probability where `params.logprobs` asked for it."""

    token_ids: list[int]
    logprobs: list[TokenLogprob | None]


@dataclass(frozen=True, slots=True)
class _Group:
    """The work that rows share. `width` is how many of the likeliest tokens count; 0 means all of them, unsorted."""

    processed: bool
    """Whether bias, penalties or a grammar change the logits first."""
    greedy: bool = False
    native: bool = False
    """Whether the kernels draw, each row by settings of its own; what follows is for stock operators."""
    limited: bool = False
    """Whether top_k limits the count."""
    width: int = 0


class Sampler:
    """Draws tokens for a vocabulary of `vocab_size` on `device`. Holds no state of sequences; not thread-safe."""

    def __init__(self, vocab_size: int, device: torch.device, kernels: Kernels | None = None) -> None:
        """`kernels`: for what they have of sampling; None is plain torch."""
        self._vocab_size = vocab_size
        self._device = device
        self._kernels = ReferenceKernels() if kernels is None else kernels
        self._native = self._kernels.drawing()
        self._all_ids = torch.arange(vocab_size, dtype=torch.int32, device=device).unsqueeze(0)

    def likeliest(self, logits: Tensor) -> list[int]:
        """What `sample` draws where every row's settings are `plain`, without rows; -1 for a row that is not finite.

        `logits`: [rows, vocabulary], float32 or bfloat16, on the sampler's device.
        """
        tokens: list[int] = self._kernels.likeliest(logits).tolist()
        return tokens

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> SampledTokens:
        """Draw the next token of every row. The host waits for the device once, for the result.

        Args:
            logits: [rows, vocabulary], float32 or bfloat16, on the sampler's device; left unchanged.
            rows: as many, in the same order.

        Raises:
            NonFiniteLogits: some rows have no distribution.
            ValueError: `logits` has another shape.
        """
        if logits.shape != (len(rows), self._vocab_size):
            expected = f"[{len(rows)}, {self._vocab_size}]"
            raise ValueError(f"logits have shape {list(logits.shape)}; {expected} (rows, vocabulary) is expected")
        if not rows:
            return SampledTokens([], [])
        token_ids, scores = self._draw_all(logits, rows)
        reported = [index for index, row in enumerate(rows) if row.params.logprobs is not None]
        packed = [token_ids.double(), scores.double()]  # float64 holds token ids and float32 exactly
        top = min(max((rows[index].params.logprobs or 0 for index in reported), default=0), self._vocab_size)
        if reported:
            which = self._index(reported, len(rows))
            packed.append(measure(_pick(logits, which), _pick(token_ids, which), top).flatten())
        return _unpack(torch.cat(packed).tolist(), rows, reported, 1 + 2 * top)

    def _draw_all(self, logits: Tensor, rows: Sequence[SamplingRow]) -> tuple[Tensor, Tensor]:
        """Token ids, int64 [rows], and the winning scores, float32 [rows]."""
        groups: dict[_Group, list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(self._group(row), []).append(index)
        token_ids = torch.empty(len(rows), dtype=torch.int64, device=self._device)
        scores = torch.empty(len(rows), dtype=torch.float32, device=self._device)
        for group, members in groups.items():
            which = self._index(members, len(rows))
            mine = [rows[member] for member in members]
            own = _pick(logits, which)
            if group.processed:
                own = own.to(torch.float32, copy=which is None)  # never the caller's tensor
                process(own, mine)
            drawn, best = self._draw(group, own, mine)
            if which is None:
                return drawn, best.float()
            token_ids.index_copy_(0, which, drawn)
            scores.index_copy_(0, which, best.float())
        return token_ids, scores

    def _group(self, row: SamplingRow) -> _Group:
        params = row.params
        processed = params.changes_logits or row.forbidden is not None
        if params.greedy:
            return _Group(processed, greedy=True)
        if self._native is not None:
            return _Group(processed, native=True)
        if 0 < params.top_k < self._vocab_size:
            width = next((width for width in _WIDTHS if params.top_k <= width), self._vocab_size)
            return _Group(processed, limited=True, width=min(width, self._vocab_size))
        if params.top_p < 1.0:
            # Whether the likeliest thousand reach the mass is known on the device only. There a full sort is cheaper
            # than asking; on the host asking is free and a sort takes five times as long as the selection.
            width = self._vocab_size if self._device.type != "cpu" else min(_WIDTHS[-1], self._vocab_size)
            return _Group(processed, width=width)
        return _Group(processed)

    def _draw(self, group: _Group, logits: Tensor, rows: Sequence[SamplingRow]) -> tuple[Tensor, Tensor]:
        """Token ids and winning scores for the rows of one group, from logits that need no more processing."""
        if group.greedy or group.native:
            index = self._kernels.likeliest(logits) if group.greedy else self._drawn(logits, rows)
            return index.clamp(min=0), torch.where(index < 0, torch.nan, 0.0)
        temperature = upload([row.params.temperature for row in rows], torch.float32, self._device).unsqueeze(-1)
        scores = scaled(logits, temperature)
        if group.width:
            return self._draw_truncated(group, scores, logits, rows)
        race = drop_unlikely(scores, [row.params.min_p for row in rows]).add_(gumbel(self._keys(rows), self._all_ids))
        best = race.max(-1)
        return best.indices, best.values

    def _drawn(self, logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
        """Tokens by the kernels; -1 for a row that has no distribution."""
        assert self._native is not None
        params = [row.params for row in rows]
        return self._native(
            logits,
            upload([p.temperature for p in params], torch.float32, self._device),
            upload([p.top_k for p in params], torch.int64, self._device),
            upload([p.top_p for p in params], torch.float64, self._device),
            upload([p.min_p for p in params], torch.float64, self._device),
            torch.cat(self._keys(rows), dim=-1),
        )

    def _draw_truncated(
        self, group: _Group, scores: Tensor, logits: Tensor, rows: Sequence[SamplingRow]
    ) -> tuple[Tensor, Tensor]:
        top_p = upload([row.params.top_p for row in rows], torch.float64, self._device).unsqueeze(-1)
        top_k = None
        if group.limited:
            top_k = upload([row.params.top_k for row in rows], torch.int64, self._device).unsqueeze(-1)
        candidates = truncate(scores, top_k, top_p, group.width)
        noise = gumbel(self._keys(rows), candidates.token_ids.to(torch.int32))
        best = drop_unlikely(candidates.scores, [row.params.min_p for row in rows]).add_(noise).max(-1)
        drawn = candidates.token_ids.gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)
        if group.limited or group.width == self._vocab_size:
            return drawn, best.values
        flat = [index for index, complete in enumerate(candidates.complete.tolist()) if not complete]
        if not flat:
            return drawn, best.values
        index = upload(flat, torch.int64, self._device)
        again, values = self._draw(
            replace(group, width=self._vocab_size), logits.index_select(0, index), [rows[row] for row in flat]
        )
        return drawn.index_copy(0, index, again), best.values.index_copy(0, index, values)

    def _keys(self, rows: Sequence[SamplingRow]) -> tuple[Tensor, Tensor]:
        keys = [
            row_key(row.noise if row.params.seed is None else row.params.seed, row.choice, row.position) for row in rows
        ]
        high, low = (upload(half, torch.int32, self._device).unsqueeze(-1) for half in zip(*keys, strict=True))
        return high, low

    def _index(self, members: Sequence[int], rows: int) -> Tensor | None:
        """`members` as a device tensor; None when they are all rows, which then need no gathering."""
        return None if len(members) == rows else upload(members, torch.int64, self._device)


def _pick(tensor: Tensor, index: Tensor | None) -> Tensor:
    return tensor if index is None else tensor.index_select(0, index)


def _unpack(
    packed: list[float], rows: Sequence[SamplingRow], reported: Sequence[int], report_width: int
) -> SampledTokens:
    count = len(rows)
    token_ids = [int(token) for token in packed[:count]]
    # A NaN or +inf anywhere in a row makes its winning score non-finite; so does a row of -inf.
    broken = [index for index, score in enumerate(packed[count : 2 * count]) if not -torch.inf < score < torch.inf]
    if broken:
        raise NonFiniteLogits(broken)
    logprobs: list[TokenLogprob | None] = [None] * count
    for place, index in enumerate(reported):
        start = 2 * count + place * report_width
        wanted = rows[index].params.logprobs or 0
        logprobs[index] = read(token_ids[index], packed[start : start + report_width], wanted)
    return SampledTokens(token_ids, logprobs)
