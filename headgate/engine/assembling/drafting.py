"""Which loaded model drafts for which, and whether it can."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headgate.engine.assembling.reading import ReadModel
from headgate.engine.errors import CheckpointError
from headgate.engine.lane import Lane

logger = logging.getLogger(__name__)


def have_drafted(models: Sequence[ReadModel], lanes: Mapping[str, Lane]) -> None:
    """Have each of these models be drafted for by the one that it names, if it names one. `lanes`: theirs, by name.

    Raises:
        CheckpointError: that one is not loaded or is the same, writes other tokens, or one of them keeps states, which
            cannot be taken back.
    """
    for large in models:
        name, drafter = large.spec.name, large.spec.drafter
        if drafter is None:
            continue
        small = next((model for model in models if model.spec.name == drafter), None)
        told = f"the model '{name}': its drafter '{drafter}'"
        if small is None or small is large:
            others = ", ".join(f"'{each}'" for each in lanes if each != name) or "none"
            raise CheckpointError(f"{told} is no other loaded model; there are {others}")
        if not small.tokenizer.same_tokens(large.tokenizer):
            raise CheckpointError(
                f"{told} has another vocabulary; a drafter needs the same tokens under the same numbers"
            )
        for model in (large, small):
            if model.decoder.spec.state_shapes:
                raise CheckpointError(
                    f"{told} cannot draft: '{model.spec.name}' is recurrent, and its state cannot be taken back"
                )
        lanes[drafter].draft_for(lanes[name], min(model.decoder.spec.vocab_size for model in (large, small)))
        logger.info("%s drafts for %s", drafter, name)
