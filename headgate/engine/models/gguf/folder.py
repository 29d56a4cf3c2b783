"""A GGUF file as the folder of a checkpoint: links to its files, and the JSON files that its metadata stands for.

The folder is `.headgate/<file>` beside the file, or in the user's cache folder where none can be made there. All that
reads checkpoints reads this one, and quantised weights are kept in it. It is made once, and anew where the file
changed; weights are never copied.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from headgate import __version__
from headgate.engine.errors import CheckpointError
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.gguf.config import EMBEDDING, gguf_config, in_metadata
from headgate.engine.models.gguf.file import MAGIC, is_gguf, parts_of, read_gguf
from headgate.engine.quant.packed_cache import users_caches
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import TokenizerError
from headgate.engine.text.gguf_tokenizer import gguf_tokenizer_files

_MADE_OF = "made-of"
"""What a folder was made of; written last."""
_FORMAT = 1
"""Of the files in it: another makes them anew."""


def gguf_folder(path: Path) -> Path:
    """The folder for the model whose (first) file is `path`.

    Raises:
        CheckpointError: it is no GGUF file, is damaged, or holds what cannot be served; or no folder can be made.
    """
    path = path.absolute()
    try:
        if not is_gguf(path):
            raise CheckpointError(f"{path}: does not begin with {MAGIC.decode()!r}; a model is a folder or a GGUF file")
        parts = parts_of(path)
        made_of = json.dumps([_FORMAT, __version__, *([str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in parts)])
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error
    candidates = [path.parent / ".headgate" / path.name]
    if (caches := users_caches()) is not None:
        candidates.append(caches / "headgate" / "gguf" / sha256(str(path).encode()).hexdigest()[:16])
    for folder in candidates:
        if _is(folder / _MADE_OF, made_of):
            return folder
    files = _files(path, parts)
    refusals = []
    for folder in candidates:
        try:
            _write(folder, files, parts, made_of)
        except OSError as error:
            refusals.append(f"{folder}: {error.strerror or error}")
            continue
        return folder
    raise CheckpointError(f"{path}: what its metadata says can be written nowhere: {'; '.join(refusals)}")


def is_made(folder: Path) -> bool:
    """Whether a folder is one that was made here."""
    return (folder / _MADE_OF).is_file()


def _files(path: Path, parts: Sequence[Path]) -> Mapping[str, Mapping[str, Any]]:
    try:
        model = read_gguf(parts)
        config = gguf_config(model)
        try:
            read_spec(config)
        except CheckpointError as error:
            raise CheckpointError(in_metadata(model, str(error))) from error
        texts = gguf_tokenizer_files(model.metadata)
        _check_texts(path, config, texts)
        return {"config.json": config, **texts}
    except (CheckpointError, TokenizerError) as error:
        told = str(error)
        raise CheckpointError(told if told.startswith(f"{path.parent}") else f"{path}: {told}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: a value of the metadata has the wrong type or size: {error}") from error


def _check_texts(path: Path, config: Mapping[str, Any], texts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse here, by the name that somebody gave the file, what would be refused of the folder's files later."""
    sides = texts["tokenizer_config.json"]
    templates = {each["name"]: each["template"] for each in sides.get("chat_template", ())}
    ChatTemplate(templates, {}, f"{path}")
    last, rows = max(texts["tokenizer.json"]["model"]["vocab"].values(), default=-1), config["vocab_size"]
    if last >= rows:
        raise CheckpointError(f"tokenizer.ggml.tokens has {last + 1} tokens for {rows} rows of {EMBEDDING!r}")


def _write(folder: Path, files: Mapping[str, Mapping[str, Any]], parts: Sequence[Path], made_of: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MADE_OF).unlink(missing_ok=True)
    # Whatever the files are called, so that the model is the same one.
    links = {folder / f"model-{number:05}.gguf": part for number, part in enumerate(parts, 1)}
    for link, part in links.items():
        unfinished = folder / f"{secrets.token_hex(8)}.part"
        unfinished.symlink_to(part)
        unfinished.replace(link)
    for other in {*folder.glob("*.gguf")} - links.keys():
        other.unlink(missing_ok=True)
    for name, content in files.items():
        _replace(folder / name, json.dumps(content, ensure_ascii=False))
    _replace(folder / _MADE_OF, made_of)


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{secrets.token_hex(8)}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _is(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False
