"""Pictures as a model takes them: resized and cut up by transformers' own code, with their tokens in the prompt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headgate.engine.text.chat_template import TemplateError
from headgate.engine.text.folder import read_object
from headgate.engine.text.picture_tokens import PictureTokens
from headgate.engine.text.pictures import Picture, Sight
from headgate.engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_NARROWEST = 200
"""Times its shorter side a picture's longer one may be. Processors that make the shorter one as long as a model wants
would make a line of a thousand pixels one of gigabytes."""

Process = Callable[[NDArray[np.uint8]], Mapping[str, Tensor]]
"""Of the pixels of one picture what the model's part that sees takes."""


@dataclass(frozen=True, slots=True)
class PictureReader:
    """Reads pictures for one model. Thread-safe.

    Attributes:
        tokens: what stands for a picture in its prompts.
        process: see Process.
    """

    tokens: PictureTokens
    process: Process

    @classmethod
    def load(cls, folder: Path, tokenizer: Tokenizer) -> PictureReader:
        """Of the checkpoint in `folder`, with transformers and Pillow; torchvision is not needed.

        Raises:
            TokenizerError: config.json cannot be read.
            ValueError: naming what the checkpoint or the tokenizer lacks.
            ImportError, OSError: a package or a file of the processor is missing.
        """
        # Not from the package itself: in some versions what is there wants torchvision.
        from transformers.models.auto.image_processing_auto import AutoImageProcessor

        config = read_object(folder / "config.json", required=True)
        tokens = PictureTokens.of(config, read_object(folder / "processor_config.json", required=False), tokenizer)
        processor: Any = AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")

        def process(pixels: NDArray[np.uint8]) -> Mapping[str, Tensor]:
            found = processor(pixels, input_data_format="channels_last", return_tensors="pt", **tokens.options)
            return {name: value for name, value in found.items() if isinstance(value, Tensor) and name in tokens.takes}

        return cls(tokens, process)

    def see(self, picture: Picture, number: int = 0, start: int = 0) -> tuple[list[int], Sight]:
        """The tokens of a picture, the `number`-th of those asked about, and itself as one whose first is at `start`.

        Raises:
            ValueError: it cannot be seen.
        """
        height, width = picture.pixels.shape[:2]
        if max(height, width) > _NARROWEST * min(height, width):
            raise _unseen(number, width, height, f"one side may be {_NARROWEST} times as long as the other at most")
        try:
            features = self.process(picture.pixels)
            ids = self.tokens.write(features)
        except Exception as error:  # whatever somebody else's code raises, of a picture that it was not made for
            raise _unseen(number, width, height, str(error)) from error
        stands = self.tokens.mark if self.tokens.stands is None else self.tokens.stands
        places = np.flatnonzero(np.asarray(ids, dtype=np.int64) == stands)
        if not len(places):
            raise _unseen(number, width, height, "it has no tokens")
        grid = None if self.tokens.grid is None else self.tokens.grid(features)
        return ids, Sight(start, len(ids), picture.digest, features, places, grid, self.tokens.whole)

    def framed(self, prompt: str) -> str:
        """The text of a prompt with all that stands around its marks."""
        before, behind = self.tokens.around
        return prompt.replace(self.tokens.text, f"{before}{self.tokens.text}{behind}")

    def place(self, prompt: Sequence[int], pictures: Sequence[Picture]) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
        """A prompt with one mark for each picture as one with their tokens, and where these are.

        Raises:
            TemplateError: it has more marks, or fewer.
            ValueError: a picture cannot be seen.
        """
        marks = [at for at, token in enumerate(prompt) if token == self.tokens.mark]
        if len(marks) != len(pictures):
            raise TemplateError(
                f"the prompt has {len(marks)} marks of pictures for {len(pictures)} pictures: the chat template has to "
                f"write one for each, and no text may spell {self.tokens.text!r}"
            )
        tokens, sights, behind = list[int](), list[Sight](), 0
        for number, (at, picture) in enumerate(zip(marks, pictures, strict=True)):
            tokens.extend(prompt[behind:at])
            ids, sight = self.see(picture, number, len(tokens))
            tokens.extend(ids)
            sights.append(sight)
            behind = at + 1
        tokens.extend(prompt[behind:])
        return tuple(tokens), tuple(sights)


def _unseen(number: int, width: int, height: int, why: str) -> ValueError:
    return ValueError(f"pictures[{number}] of {width} x {height} pixels cannot be seen by this model: {why}")
