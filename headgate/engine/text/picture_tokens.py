"""The tokens that stand for a picture in a prompt, by the family of the model that sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from headgate.engine.text.tokenizer import Tokenizer

PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Either says how pictures are to be cut up."""


@dataclass(frozen=True, slots=True)
class PictureTokens:
    """What a family writes for a picture.

    Attributes:
        mark: the token that the chat template writes, one per picture.
        text: how it is spelled.
        write: the tokens of a picture that was processed to these features.
        takes: names of the features that the part that sees takes.
        options: of the processor, besides what its file says.
    """

    mark: int
    text: str
    write: Callable[[Mapping[str, Tensor]], list[int]]
    takes: frozenset[str] = frozenset({"pixel_values"})
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Callable[[Mapping[str, Tensor]], tuple[int, int]] | None = None
    """See Sight."""
    whole: bool = False
    """See Sight."""
    stands: int | None = None
    """The token in whose places are what the part that sees gives; None: it is the mark."""
    around: tuple[str, str] = "", ""
    """What a prompt has before and behind each mark, beyond what the chat template writes."""

    @classmethod
    def of(cls, config: Mapping[str, Any], processor: Mapping[str, Any], tokenizer: Tokenizer) -> PictureTokens:
        """Of a checkpoint with this config.json and processor_config.json, which may be empty.

        Raises:
            ValueError: the family is not known, or the tokenizer lacks one of the tokens.
        """
        kind, vision = config.get("model_type"), config.get("vision_config") or {}
        mark = config.get("image_token_id", config.get("image_token_index"))
        text = _spelling(tokenizer, "image_token_index", mark)
        if kind == "mistral3" or (kind == "llava" and vision.get("model_type") == "pixtral"):
            unit = int(vision.get("patch_size", 16)) * int(
                config.get("spatial_merge_size", 1 if kind == "llava" else 2)
            )
            spelled = [str(processor.get(f"image_{at}_token", f"[IMG_{at.upper()}]")) for at in ("break", "end")]
            between, end = (_token(tokenizer, each) for each in spelled)
            options = {"patch_size": {"height": unit, "width": unit}}
            return cls(mark, text, _Rows(mark, between, end, unit), frozenset({"pixel_values", "image_sizes"}), options)
        if kind == "llava":
            # Of some there is a row that stands for all, and the first one is left out, or is not.
            rows = (vision.get("model_type") == "clip_vision_model") - (
                config.get("vision_feature_select_strategy", "default") == "default"
            )
            return cls(mark, text, _Squares(mark, int(vision.get("patch_size", 32)), rows))
        if kind == "internvl":
            each = processor.get("image_seq_length", config.get("image_seq_length", 256))
            begin, end = (_token(tokenizer, spelled) for spelled in ("<img>", "</img>"))
            return cls(mark, text, _Tiles(mark, begin, end, int(each)), options={"crop_to_patches": True})
        if kind == "gemma3":
            opened = config.get("boi_token_index", 255999)
            opening = _spelling(tokenizer, "boi_token_index", opened)
            closing = _spelling(tokenizer, "eoi_token_index", config.get("eoi_token_index", 256000))
            ids = [opened, *[mark] * int(config.get("mm_tokens_per_image", 256))]
            return cls(
                opened,
                opening,
                lambda _: ids,
                options={"do_pan_and_scan": False},
                whole=True,
                stands=mark,
                around=("\n\n", f"{closing}\n\n"),
            )
        if kind in _QWEN:
            grid = _Grid(int(vision.get("spatial_merge_size", 2)))
            write = partial(_filled, mark, grid)
            return cls(mark, text, write, frozenset({"pixel_values", "image_grid_thw"}), grid=grid)
        raise ValueError(f"config.json: pictures of model_type {kind!r} are not known; known are {', '.join(KINDS)}")


_QWEN = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
KINDS = ("mistral3", "llava", "internvl", "gemma3", *_QWEN)
"""Values of model_type whose pictures are known."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of Pixtral: a mark for each square of `unit` pixels, row by row, with a token behind each row but the last, which
    has another."""

    mark: int
    between: int
    end: int
    unit: int

    def __call__(self, features: Mapping[str, Tensor]) -> list[int]:
        height, width = features["image_sizes"][0].tolist()
        if height * width <= self.unit**2:  # of a single square transformers' code makes no row
            raise ValueError(f"it is too small; more than {self.unit} x {self.unit} pixels are accepted")
        row = [self.mark] * (width // self.unit)
        ids = [*row, self.between] * (height // self.unit)
        return [*ids[:-1], self.end] if row and ids else []


@dataclass(frozen=True, slots=True)
class _Squares:
    """Of LLaVA: a mark for each square of `unit` pixels, and `more`."""

    mark: int
    unit: int
    more: int

    def __call__(self, features: Mapping[str, Tensor]) -> list[int]:
        height, width = features["pixel_values"].shape[-2:]
        return [self.mark] * ((height // self.unit) * (width // self.unit) + self.more)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Of InternVL: `each` marks for each of the tiles that a picture is cut into, between two tokens."""

    mark: int
    begin: int
    end: int
    each: int

    def __call__(self, features: Mapping[str, Tensor]) -> list[int]:
        return [self.begin, *[self.mark] * (len(features["pixel_values"]) * self.each), self.end]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Of Qwen: rows and columns of squares of `merged` patches a side."""

    merged: int

    def __call__(self, features: Mapping[str, Tensor]) -> tuple[int, int]:
        _, rows, columns = features["image_grid_thw"][0].tolist()
        return rows // self.merged, columns // self.merged


def _filled(mark: int, grid: _Grid, features: Mapping[str, Tensor]) -> list[int]:
    rows, columns = grid(features)
    return [mark] * (rows * columns)


def _spelling(tokenizer: Tokenizer, key: str, token: object) -> str:
    text = tokenizer.decode([token], skip_special=False) if isinstance(token, int) else ""
    if not text:
        raise ValueError(f"config.json: {key} is {token!r}, which is no token of the tokenizer")
    return text


def _token(tokenizer: Tokenizer, text: str) -> int:
    token = tokenizer.token(text)
    if token is None:
        raise ValueError(f"tokenizer.json has no token {text!r}, which prompts with pictures have")
    return token
