"""Which loaded model drafts for which, and whether it can."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.engine.errors import CheckpointError
from headgate.engine.lane import Lane
from headgate.engine.models.language_model import ModelShape
from headgate.engine.settings import ModelSpec
from headgate.engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is loaded."""

    lane: Lane
    shape: ModelShape
    tokenizer: Tokenizer


def have_drafted(spec: ModelSpec, served: Mapping[str, Served]) -> None:
    """Have the model of this spec be drafted for by the one that it names, if it names one.

    Raises:
        CheckpointError: that one is not loaded or is the same, writes other tokens, or one of them keeps states, which
            cannot be taken back.
    """
    if spec.drafter is None:
        return
    large, small = served[spec.name], served.get(spec.drafter)
    told = f"the model '{spec.name}': its drafter '{spec.drafter}'"
    if small is None or small is large:
        others = ", ".join(f"'{name}'" for name in served if name != spec.name) or "none"
        raise CheckpointError(f"{told} is no other loaded model; there are {others}")
    if not small.tokenizer.same_tokens(large.tokenizer):
        raise CheckpointError(f"{told} has another vocabulary; a drafter needs the same tokens under the same numbers")
    for name, each in ((spec.name, large), (spec.drafter, small)):
        if each.shape.state_shapes:
            raise CheckpointError(f"{told} cannot draft: '{name}' is recurrent, and its state cannot be taken back")
    small.lane.draft_for(large.lane, min(each.shape.vocab_size for each in (small, large)))
    logger.info("%s drafts for %s", spec.drafter, spec.name)
