"""The part of a model that sees: transformers' own code, whose rows stand in a prompt where pictures do."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headgate.engine.errors import lacks_memory
from headgate.engine.models.weights.quantization import STATED_IN
from headgate.engine.text.picture_tokens import KINDS, PROCESSORS
from headgate.engine.text.pictures import Sight

logger = logging.getLogger(__name__)

_PACKAGES = {"transformers": "transformers", "PIL": "pillow"}


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a step's tokens do not say by themselves, where pictures are before them or among them.

    Attributes:
        places: int64 [given], which rows of the step's hidden states are not those of its tokens.
        rows: [given, 1 + n, hidden] in the compute dtype: these, and what is added to them behind each of the first n
            layers.
        turns: int64 [3, tokens], the positions by which heads turn, where pictures have rows and columns; else None.
        limits: see AttentionBatch.
    """

    places: Tensor
    rows: Tensor
    turns: Tensor | None = None
    limits: Tensor | None = None


class Eyes:
    """Looks at pictures."""

    def __init__(self, model: Any, hidden: int) -> None:
        """`model`: of transformers, without its text model. `hidden`: width of that."""
        self._model = model
        self._hidden = hidden

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.tensors[0].device

    @property
    def nothing(self) -> Tensor:
        """What it gives of no picture."""
        return self.tensors[0].new_empty(0, 1, self._hidden)

    @property
    def tensors(self) -> list[Tensor]:
        """All weights."""
        return [*self._model.parameters(), *self._model.buffers()]

    def look(self, sight: Sight) -> Tensor:
        """[placeholders, 1 + n, hidden] in the compute dtype; see `Given.rows`.

        Raises:
            ValueError: it gives another number of rows than the picture has placeholders.
        """
        weight = self.tensors[0]
        features = {
            name: value.to(weight.device, weight.dtype if value.is_floating_point() else None)
            for name, value in sight.features.items()
        }
        found: Any = self._model.get_image_features(**features)
        parts = [getattr(found, "pooler_output", found), *(getattr(found, "deepstack_features", None) or ())]
        rows = torch.stack([self._flat(part) for part in parts], dim=1).to(weight.dtype)
        if len(rows) != len(sight.places):
            raise ValueError(
                f"a picture has {len(sight.places)} placeholders, and the part that sees gives {len(rows)}"
            )
        return rows

    def _flat(self, part: Tensor | Sequence[Tensor]) -> Tensor:
        if not isinstance(part, Tensor):
            part = torch.cat([each.reshape(-1, each.shape[-1]) for each in part])
        return part.reshape(-1, self._hidden)


def read_eyes(
    folder: Path, config: Mapping[str, Any], *, hidden: int, dtype: torch.dtype, device: torch.device
) -> Eyes | None:
    """The part that sees of the checkpoint in `folder`, whose text model has `hidden` features.

    None where it has none that is known, or where something is missing: the log says what.
    """
    kind = config.get("model_type")
    if not isinstance(config.get("vision_config"), Mapping):
        return None
    if kind not in KINDS:
        logger.info("%s: text alone; pictures are seen by models of model_type %s", folder, ", ".join(KINDS))
        return None
    lacking = [package for name, package in _PACKAGES.items() if importlib.util.find_spec(name) is None]
    if lacking:
        logger.info("%s: text alone; pip install 'headgate[pictures]' has it see (%s)", folder, ", ".join(lacking))
        return None
    if not any((folder / name).is_file() for name in PROCESSORS):
        logger.info(
            "%s: text alone; none of %s is there, which say what pictures become", folder, ", ".join(PROCESSORS)
        )
        return None
    try:
        return Eyes(_read(folder, str(kind), dtype).to(device).eval(), hidden)
    except Exception as error:
        if lacks_memory(error):
            raise
        logger.warning(
            "%s: text alone; its part that sees cannot be loaded: %s: %s", folder, type(error).__name__, error
        )
        return None


def _read(folder: Path, kind: str, dtype: torch.dtype) -> Any:
    """Transformers' model without the text model, of which no weights are read."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    from transformers.utils import logging as telling

    config: Any = CONFIG_MAPPING[kind].from_pretrained(folder, local_files_only=True)
    plain = {key: value for key, value in config.to_dict().items() if key not in STATED_IN}
    added = plain["vision_config"].get("deepstack_visual_indexes") or ()
    layers = plain["text_config"]["num_hidden_layers"]
    if len(added) >= layers:  # behind the last one there are only the rows that are asked for
        raise ValueError(f"deepstack_visual_indexes has {len(added)} layers; fewer than {layers} are accepted")
    # Of its text model as little as there can be: that is computed elsewhere.
    plain["text_config"].update(num_hidden_layers=0, vocab_size=8, layer_types=None, pad_token_id=None)
    shown, told = telling.is_progress_bar_enabled(), telling.get_verbosity()
    telling.disable_progress_bar()
    telling.set_verbosity_error()  # it would list the tensors of the text model
    try:
        config = type(config).from_dict(plain)
        model, found = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)].from_pretrained(
            folder, config=config, dtype=dtype, ignore_mismatched_sizes=True, output_loading_info=True,
            local_files_only=True,
        )  # fmt: skip
    finally:
        telling.set_verbosity(told)
        if shown:
            telling.enable_progress_bar()
    for parent, name in ((model.model, "language_model"), (model, "lm_head")):
        if hasattr(parent, name):
            delattr(parent, name)
    own = {name for name, _ in model.named_parameters()}
    names = [str(each[0] if isinstance(each, tuple) else each) for each in found["mismatched_keys"]]
    lacking = sorted(own.intersection([*found["missing_keys"], *names]))
    if lacking:
        raise ValueError(f"{len(lacking)} of its tensors are missing, such as {lacking[0]}")
    return model
