"""Training data from JSON lines, encoded as serving would encode it.

A line is {"messages": [...], "tools": [...], "split": "train"} or {"prompt": "...", "completion": "...", "split": ...};
`tools` and `split` are optional. `python -m headgate.training.conversations --out FILE` writes the demo pair's tasks in
this form.
"""

from __future__ import annotations

import argparse
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from headgate.engine.text.chat_template import ChatTemplate, NoChatTemplate, TemplateError
from headgate.engine.text.tokenizer import Tokenizer
from headgate.training.batches import Encoded
from headgate.training.runs import whole
from headgate.training.turns import tool, turn

DEFAULT_SPLIT = "train"
"""The split of a line in a single file that names none."""


class DataError(ValueError):
    """Data that cannot be learned from. The message names the file and, where there is one, the line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One valid object of a data file.

    `where` is "file:line". Either `messages` is there, with `tools` if any, as chat templates are given them, or
    `prompt` and `completion` are.
    """

    where: str
    split: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    prompt: str = ""
    completion: str = ""


class Rows:
    """Encoded conversations in about five bytes a token: lists of Python numbers would take sixteen and more."""

    def __init__(self) -> None:
        self._ids = array("i")
        self._learned = bytearray()
        self._ends = [0]
        self.answers = 0
        """Answer tokens that can be learned, all rows together: those with at least one token before them."""

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Encoded:
        begin, end = self._ends[index], self._ends[index + 1]
        return self._ids[begin:end].tolist(), [bool(flag) for flag in self._learned[begin:end]]

    def append(self, row: Encoded) -> None:
        """Adds a row, unless nothing in it can be learned."""
        ids, learned = row
        answers = sum(learned[1:])
        if answers:
            self._ids.extend(ids)
            self._learned.extend(learned)
            self._ends.append(len(self._ids))
            self.answers += answers


class Encoder:
    """Turns lines into rows, with the tokenizer and chat template of a Hugging Face folder.

    Raises `TokenizerError` for a folder without a tokenizer that the engine reads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = Tokenizer.load(folder)
        self._template = ChatTemplate.load(folder)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return self._tokenizer.eos_ids

    def rows(self, line: Line) -> list[Encoded]:
        """The line's answers, each behind exactly the tokens that serving would give the model before it.

        Usually one row with all answers. Where a template writes earlier turns in another way than it did when they
        were answered (those that drop earlier reasoning do), an answer begins a row of its own.
        Raises `DataError` if the chat template cannot show where an answer begins.
        """
        rows: list[Encoded] = []
        for prompt, answer in self._turns(line):
            ids, learned = rows[-1] if rows else ([], [])
            if rows and prompt[: len(ids)] == ids:
                learned = learned + [False] * (len(prompt) - len(ids))
                rows[-1] = (prompt + answer, learned + [True] * len(answer))
            else:
                rows.append((prompt + answer, [False] * len(prompt) + [True] * len(answer)))
        return rows

    def _turns(self, line: Line) -> Iterator[tuple[list[int], list[int]]]:
        """Token ids of each answer and of what precedes it."""
        if not line.messages:
            yield self._split(line.prompt, line.completion, add_special_tokens=True)
            return
        tools = line.tools or None
        for place, message in enumerate(line.messages):
            if message["role"] != "assistant":
                continue
            try:
                prompt = self._template.render(line.messages[:place], tools=tools)
                full = self._template.render(line.messages[: place + 1], tools=tools, add_generation_prompt=False)
            except NoChatTemplate:
                raise DataError(
                    f"{line.where}: 'messages' needs a chat template and {self._folder} has none; "
                    "'prompt' and 'completion' are accepted"
                ) from None
            except TemplateError as error:
                raise DataError(f"{line.where}: the chat template refuses the messages: {error}") from None
            if not full.startswith(prompt):
                raise DataError(
                    f"{line.where}: messages[{place}]: the chat template of {self._folder} does not begin the answer "
                    "where add_generation_prompt ends, so the answer cannot be found; 'prompt' and 'completion' are "
                    "accepted"
                )
            yield self._split(prompt, full[len(prompt) :], add_special_tokens=False)

    def _split(self, prompt: str, answer: str, *, add_special_tokens: bool) -> tuple[list[int], list[int]]:
        before = self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        whole = self._tokenizer.encode(prompt + answer, add_special_tokens=add_special_tokens)
        if whole[: len(before)] == before:
            after = whole[len(before) :]
        else:
            # The tokenizer merges over the border. A served model starts behind the prompt's own tokens.
            after = self._tokenizer.encode(answer, add_special_tokens=False)
        for place, token in enumerate(after):
            if token in self.eos_ids:
                # Generation stops here; what the template writes behind it is part of the next prompt.
                return before, after[: place + 1]
        return before, [*after, *self._tokenizer.known_eos_ids[:1]]


def read_lines(data: Path, splits: Sequence[str]) -> Iterator[Line]:
    """The lines of `splits` in a file, or in a folder's files "<split>.jsonl".

    Raises `DataError` for a line that is not valid, and at the end for a split without lines, naming those there are.
    """
    counts: Counter[str] = Counter()
    for path in _files(data, splits):
        own = path.stem if data.is_dir() else None
        for number, text in enumerate(_texts(path), start=1):
            if text.strip():
                line = _line(f"{path}:{number}", text, own)
                counts[line.split] += 1
                if line.split in splits:
                    yield line
    if data.is_dir():
        counts.update({path.stem: 0 for path in data.glob("*.jsonl")})
    for split in splits:
        if not counts[split]:
            present = ", ".join(f"{name} ({counts[name]} lines)" for name in sorted(counts) if counts[name])
            others = ", ".join(f"{name}.jsonl" for name in sorted(counts) if not counts[name] and name not in splits)
            raise DataError(
                f"{data}: no lines of split {split!r}; there are {present or 'no lines'}"
                + (f", and unread {others}" if others else "")
                + f'. Mark lines with "split": "{split}", or give a folder with {split}.jsonl'
            )


def load(data: Path, splits: Sequence[str], encoder: Encoder, limits: Mapping[str, int]) -> dict[str, Rows]:
    """The encoded rows of each split.

    `limits` are the lengths in tokens that a row may have, by what limits it, such as "--tokens".
    Raises `DataError` for lines that are not valid, rows that are too long, and splits without answer tokens.
    """
    rows = {split: Rows() for split in splits}
    for line in read_lines(data, splits):
        for row in encoder.rows(line):
            for name, limit in limits.items():
                if len(row[0]) > limit:
                    raise DataError(
                        f"{line.where}: the conversation has {len(row[0])} tokens, {name} is {limit}; "
                        "shorten it, leave it out or raise the limit"
                    )
            rows[line.split].append(row)
    for split, found in rows.items():
        if not found.answers:
            raise DataError(
                f"{data}: split {split!r} has no answer tokens; each line needs an assistant message or a completion"
            )
    return rows


def digest(data: Path, splits: Sequence[str]) -> str:
    """Hex SHA-256 of the files that `read_lines` reads."""
    total = sha256()
    for path in _files(data, splits):
        for text in _texts(path):
            total.update(text)
        total.update(b"\0")
    return total.hexdigest()


def _files(data: Path, splits: Sequence[str]) -> list[Path]:
    if data.is_dir():
        present = sorted(path.name for path in data.glob("*.jsonl"))
        if missing := [split for split in splits if f"{split}.jsonl" not in present]:
            there = ", ".join(f"{name} ({sum(1 for _ in _texts(data / name))} lines)" for name in present)
            raise DataError(f"{data}: {missing[0]}.jsonl is missing; there are {there or 'no .jsonl files'}")
        return [data / f"{split}.jsonl" for split in splits]
    if not data.is_file():
        raise DataError(f"{data}: no such file; JSON lines, or a folder of train.jsonl and so on, are accepted")
    return [data]


def _texts(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _line(where: str, text: bytes, own: str | None) -> Line:
    """A valid line; `own` is the split its file stands for."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: holds a JSON {type(value).__name__}; an object is accepted")
    split = value.get("split") or own or DEFAULT_SPLIT
    if not isinstance(split, str) or (own is not None and split != own):
        raise DataError(f"{where}: split is {split!r}; {repr(own) if own else 'a string'} is accepted here")
    if "messages" in value:
        if "prompt" in value or "completion" in value:
            raise DataError(f"{where}: has 'messages' beside 'prompt' or 'completion'; one form is accepted")
        messages = _objects(where, "messages", value["messages"])
        if not messages:
            raise DataError(f"{where}: messages is empty; at least a user's and an assistant's message are needed")
        tools = _objects(where, "tools", value.get("tools") or [])
        try:
            return Line(
                where,
                split,
                tuple(turn(f"messages[{place}]", message) for place, message in enumerate(messages)),
                tuple(tool(f"tools[{place}]", given) for place, given in enumerate(tools)),
            )
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
    for field in ("prompt", "completion"):
        if not isinstance(value.get(field), str):
            raise DataError(
                f"{where}: {field} is {value.get(field)!r}; 'messages', or 'prompt' and 'completion' as strings, "
                "are accepted"
            )
    return Line(where, split, prompt=value["prompt"], completion=value["completion"])


def _objects(where: str, field: str, value: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise DataError(f"{where}: {field} is {str(value)[:60]!r}; a list of objects is accepted")
    return tuple(value)


def write_demo_tasks(path: Path, *, samples: int, seed: int) -> None:
    """Writes `samples` lines of the demo pair's tasks for training and a tenth as many for calibration.

    The file appears whole or not at all.
    """
    from headgate.engine.demo.tasks import generate

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as place, place.open("w", encoding="utf-8") as file:
        for sample in (
            *generate(samples, seed=seed, split="train"),
            *generate(max(1, samples // 10), seed=seed, split="calibration"),
        ):
            messages, tools = sample.conversation
            record: dict[str, Any] = {"messages": [*messages, {"role": "assistant", "content": sample.written}]}
            if tools:
                record["tools"] = tools
            file.write(json.dumps({**record, "split": sample.split}, ensure_ascii=False) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and writes the demo pair's tasks as JSON lines."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate.training.conversations", description="Write demo tasks as data for headgate distill."
    )
    parser.add_argument("--samples", type=int, default=20_000, help="lines to train on; a tenth more are the holdout")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same lines")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    options = parser.parse_args(arguments)
    if options.samples < 1:
        parser.error(f"--samples is {options.samples}; it must be at least 1")
    write_demo_tasks(options.out, samples=options.samples, seed=options.seed)
    print(f"{options.out}: {options.samples} lines of train, {max(1, options.samples // 10)} of calibration")


if __name__ == "__main__":
    main()
