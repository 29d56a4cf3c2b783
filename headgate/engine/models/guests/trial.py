"""Whether a guest gives the logits that transformers gives by itself: of a prompt that is read in parts."""

from __future__ import annotations

import inspect
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.states import StepStates
from headgate.engine.kv.store import KVStore
from headgate.engine.models.guests.guest import Guest
from headgate.engine.models.guests.parts import ATTENTION

_STEPS = [37, 1, 1, 1, 1, 1, 54]
"""Tokens of the steps in which the prompt is read."""
_BESIDE = [5, 1, 1, 1, 33, 54, 1]
"""Where states are kept, of a sequence with the same prompt in the same steps."""
_BEHIND, _THIRD = 32, [30, 1, 33]
"""There, too: behind so many tokens of the first sequence another one begins, and goes on in steps of its own."""
_BLOCK = 16
OFF, OFF_ROUNDED = {torch.float32: 0.01}, 0.3
"""How far logits may be off, as a part of how much they differ: another mask or a lost state makes that 1 or so."""


def prompt(vocab_size: int, device: torch.device) -> Tensor:
    """int64 [96]."""
    return torch.arange(sum(_STEPS), device=device) * 7919 % vocab_size


def own_logits(model: Any, tokens: Tensor, *, remembers: bool) -> Tensor:
    """[tokens, vocab_size] in float32, as transformers has them with its own attention.

    In steps with its own cache; or, where layers keep a state, at once: some have no way to read a prompt in parts.
    """
    from transformers import DynamicCache

    model.set_attn_implementation("eager")
    cache: dict[str, Any] = {"use_cache": False}
    if not remembers:
        # Its name has changed in transformers 5.
        name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        cache = {name: DynamicCache(config=model.config), "use_cache": True}
    steps = torch.split(torch.arange(len(tokens), device=tokens.device), [len(tokens)] if remembers else _STEPS)
    found = [model(input_ids=tokens[s].unsqueeze(0), position_ids=s.unsqueeze(0), **cache).logits[0] for s in steps]
    model.set_attn_implementation(ATTENTION)
    return torch.cat(found).float()


def off(guest: Guest, tokens: Tensor, wanted: Tensor) -> float:
    """How far the guest's logits are off in steps: the middle one of a step's rows, or of the short steps'.

    Not the worst: a token of a mixture may go to other experts by the last bits of its router.
    """
    reading = _Reading(guest, tokens)
    differences: dict[bool, list[Tensor]] = {}
    for step in _steps(remembers=bool(guest.spec.state_shapes)):
        row, (found, places) = 0, reading.read(step)
        right = wanted[places]
        spread = (right - right.mean(-1, keepdim=True)).norm(dim=-1)
        differ = ((found - right).norm(dim=-1) / spread).nan_to_num(torch.inf)
        for _, count in step:
            of_it = differ[row : row + count]
            differences.setdefault(count == 1, []).append(of_it if count == 1 else of_it.median().reshape(1))
            row += count
    return max(float(torch.cat(differences[True]).median()), float(torch.cat(differences[False]).max()))


def _steps(*, remembers: bool) -> list[list[tuple[int, int]]]:
    """Numbers of sequences and tokens of each, by step."""
    if not remembers:
        return [[(0, count)] for count in _STEPS]
    both = [[(1, beside), (0, count)] for count, beside in zip_longest(_STEPS, _BESIDE)]
    return [*both, *([(2, count)] for count in _THIRD)]


class _Reading:
    """Three sequences of the same tokens, the last one behind a part that the first one has computed."""

    def __init__(self, guest: Guest, tokens: Tensor) -> None:
        self._guest, self._tokens = guest, tokens
        blocks = len(tokens) // _BLOCK
        self._store = KVStore(guest.spec, 3 * blocks, _BLOCK, guest.dtype, guest.device, states=4)
        for pool in self._store.states:
            pool.fill_(torch.nan)  # what is there is nobody's
        self._tables = [list(range(n * blocks, (n + 1) * blocks)) for n in range(3)]
        self._tables[2][: _BEHIND // _BLOCK] = self._tables[0][: _BEHIND // _BLOCK]
        self._done = [0, 0, _BEHIND]

    def read(self, step: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Logits of a step's tokens in float32, and their places in the prompt."""
        device, saves, parts, slots = self._guest.device, list[list[tuple[int, int]]](), list[Tensor](), list[int]()
        for number, count in step:
            start = self._done[number]
            self._done[number] = stop = start + count
            saves.append([(_BEHIND, 3)] if number == 0 and start < _BEHIND <= stop else [])
            if number == 2 and start == _BEHIND:
                for pool in self._store.states:
                    pool[number].copy_(pool[3])
            parts.append(torch.arange(start, stop, device=device))
            slots.extend(self._tables[number][at // _BLOCK] * _BLOCK + at % _BLOCK for at in range(start, stop))
        places = torch.cat(parts)
        batch = AttentionBatch(
            [count for _, count in step],
            [self._done[number] for number, _ in step],
            [self._tables[number] for number, _ in step],
            torch.tensor(slots, device=device),
            _BLOCK,
            StepStates(self._store.states, [number for number, _ in step], saves) if self._store.states else None,
        )
        rows = torch.arange(len(places), device=device)
        found = self._guest.forward(self._tokens[places], places, batch, self._store.layers, rows)
        return found.float(), places
