"""What sequences are held to while kernels compute several steps of them in one call."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import torch

from headgate.engine.kernels.whole_step import AGAIN, FREE, HELD, LOST
from headgate.engine.sampling.grammar import GrammarError, Guide


class GuidedForms:
    """Implements the Forms protocol.

    The likeliest token of all is the likeliest allowed one if it is allowed. So where a greedy choice went by itself as
    the grammar wants it, the next one is made freely, and the grammar is only asked whether it takes that token, which
    costs a fraction of asking for all that it would. Draws are always made from allowed tokens: these decide how
    likely each is, and top_k and top_p which of them there are.
    """

    def __init__(self, guides: Mapping[int, tuple[Guide, bool]], sequences: int, vocab_size: int) -> None:
        """`guides`: of those of the `sequences` that have one, by number, each at its last known token; and whether
        choices are greedy.
        """
        of = array("q", (-1,) * sequences)
        for form, number in enumerate(guides):
            of[number] = form
        self._numbers, self._guides = tuple(guides), tuple(guides.values())
        self.of = torch.frombuffer(of, dtype=torch.int64)
        self.allowed = torch.zeros((len(guides), -(-vocab_size // 32)), dtype=torch.int32)
        self._told = array("q", (-1, FREE, 0) * len(guides))
        self.told = torch.frombuffer(self._told, dtype=torch.int64).view(-1, 3)
        self._address, self._stride = self.allowed.data_ptr(), self.allowed[0].nbytes
        self.errors: dict[int, str] = {}
        """Why sequences cannot be followed any further, by their number."""

    def prepare(self) -> None:
        """See Forms."""
        for at, (guide, greedy) in enumerate(self._guides):
            state = self._learn(at)
            if state != LOST:
                self._tell(at, HELD if guide.leads or not greedy else FREE)

    def settle(self) -> None:
        """See Forms."""
        for at, (guide, _) in enumerate(self._guides):
            token, state, _ = self._told[3 * at : 3 * at + 3]
            if state == FREE and not guide.takes(token):
                self._tell(at, AGAIN)

    def end(self) -> None:
        """The last step is over: the guides go on by its tokens."""
        for at in range(len(self._guides)):
            self._learn(at)

    def _learn(self, at: int) -> int:
        """Go on by the token that was chosen from the allowed ones, if one was; returns how it was chosen."""
        guide, (token, state, refused) = self._guides[at][0], self._told[3 * at : 3 * at + 3]
        # -1 where the logits were not finite: that ends this request, and no guide goes on by it.
        if state in (HELD, AGAIN) and token >= 0:
            guide.take(token)
            guide.leads = bool(refused)
        return state

    def _tell(self, at: int, state: int) -> None:
        if state != FREE:
            try:
                self._guides[at][0].allow(self._address + at * self._stride)
            except GrammarError as error:
                self.errors[self._numbers[at]] = str(error)
                state = LOST
        self._told[3 * at + 1] = state
