"""What the text side reads from a Hugging Face model folder, besides `tokenizer.json` itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

# The roles that `tokenizer_config.json` and `special_tokens_map.json` may name; chat templates see them as variables.
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Further special tokens without a role of their own; transformers 5 writes the second name.
_LISTS = ("additional_special_tokens", "extra_special_tokens")


class TokenizerError(ValueError):
    """A tokenizer folder that cannot be used. The message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """The JSON side files of a tokenizer.

    Attributes:
        special_tokens: role (such as "eos_token") to the token's text.
        additional_special_tokens: texts of further special tokens.
        eos_token_ids: ids from `generation_config.json`, else from `config.json`; empty if neither names any.
        templates: chat templates by name, "default" for a single one; empty if the folder has none.
    """

    special_tokens: Mapping[str, str]
    additional_special_tokens: tuple[str, ...]
    eos_token_ids: tuple[int, ...]
    templates: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> TokenizerFolder:
        """Read the side files that exist; all of them are optional.

        Raises:
            TokenizerError: the folder is missing, or a file in it is damaged.
        """
        if not path.is_dir():
            raise TokenizerError(f"{path}: no such folder; a Hugging Face model folder is expected")
        config = read_object(path / "tokenizer_config.json", required=False)
        legacy = read_object(path / "special_tokens_map.json", required=False)
        special = {
            role: text
            for source, name in ((legacy, "special_tokens_map.json"), (config, "tokenizer_config.json"))
            for role in _ROLES
            if (text := _token_text(source.get(role), path / name, role)) is not None
        }
        further = tuple(
            text
            for source, name in ((legacy, "special_tokens_map.json"), (config, "tokenizer_config.json"))
            for role in _LISTS
            for text in _token_texts(source.get(role), path / name, role)
        )
        eos = _eos_ids(path / "generation_config.json") or _eos_ids(path / "config.json")
        return cls(special, further, eos, _templates(path, config))


def text_revision(folder: Path) -> str:
    """Equal for folders that turn texts, conversations and their pictures into the same tokens: a digest of the files
    that say how.
    """
    digest = blake2b(digest_size=16)
    named = [
        path for name in ("*token*.json", "chat_template*", "*processor_config.json") for path in folder.glob(name)
    ]
    for path in sorted([*named, *_named_templates(folder)]):
        if path.is_file():
            raw = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()}:{len(raw)}:".encode())
            digest.update(raw)
    return digest.hexdigest()


def read_object(path: Path, *, required: bool) -> dict[str, Any]:
    """The JSON object in a file; an empty one if the file is absent and not required.

    Raises:
        TokenizerError: naming the file that is missing, unreadable, not JSON or not an object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        if required:
            raise TokenizerError(f"{path}: the file is missing") from None
        return {}
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TokenizerError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: holds a JSON {type(value).__name__}; an object is expected")
    return value


def _token_text(entry: object, path: Path, role: str) -> str | None:
    """A token is given as its text, as an object with its text under "content", or as null."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    if text is None or isinstance(text, str):
        return text
    raise TokenizerError(f"{path}: {role} is {entry!r}; a string or an object with a string 'content' is expected")


def _token_texts(entries: object, path: Path, role: str) -> list[str]:
    """Tokens are given as a list, as an object with a token for each name, or as null."""
    if isinstance(entries, dict):
        entries = list(entries.values())
    if entries is not None and not isinstance(entries, list):
        raise TokenizerError(f"{path}: {role} is {entries!r}; a list or an object of tokens is expected")
    return [text for entry in entries or () if (text := _token_text(entry, path, role)) is not None]


def _eos_ids(path: Path) -> tuple[int, ...]:
    value = read_object(path, required=False).get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(entry) is int and entry >= 0 for entry in ids):
        raise TokenizerError(f"{path}: eos_token_id is {value!r}; a token id or a list of token ids is expected")
    return tuple(ids)


def _named_templates(path: Path) -> list[Path]:
    """Where transformers 5 saves what is not the default, such as tool_use."""
    return sorted((path / "additional_chat_templates").glob("*.jinja"))


def _templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Files of their own win over `tokenizer_config.json`, as in transformers."""
    default = path / "chat_template.jinja"
    files = {file.stem: file for file in _named_templates(path)} | ({"default": default} if default.exists() else {})
    if files:
        return {name: _template(file) for name, file in files.items()}
    value = config.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    try:
        named = {entry["name"]: entry["template"] for entry in value}
    except (TypeError, KeyError):
        named = {}
    if not named or not all(isinstance(text, str) for item in named.items() for text in item):
        raise TokenizerError(
            f"{path / 'tokenizer_config.json'}: chat_template is neither a string nor a list of objects with a "
            "string 'name' and a string 'template'"
        )
    return named


def _template(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file}: cannot be read: {error}") from error
