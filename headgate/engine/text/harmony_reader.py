"""An answer in harmony, told apart: thoughts, text, and calls, in text that comes in pieces of any size."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from headgate.engine.text.harmony import (
    APART,
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MARKS,
    MESSAGE,
    START,
    Header,
    Kind,
    header,
    stray,
    untitled,
)
from headgate.engine.text.json_call import JsonValue
from headgate.engine.text.stops import StopMatcher
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import CallPiece, Said

_SHOWN = tuple(APART + mark for mark in MARKS)
_IN_BODIES = re.compile(f"{APART}({'|'.join(map(re.escape, MARKS))})")
_AFTER_HEADERS = re.compile(f"{APART}({'|'.join(map(re.escape, (START, END, MESSAGE)))})")
_BETWEEN = "\n\n"
"""Between two messages of one kind."""


class HarmonyReader:
    """Tells a choice's thoughts and calls from its answer.

    A message that calls a function which was not given, or does not give it an object, is text, its recipient before
    it. So are messages in unknown channels, and what is no message: text where a header should be, unless others follow
    it, which makes it a thought. Marks are never text, and stop strings are looked for in thoughts and text only.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        functions: Collection[str],
        begun: Sequence[int] = (),
        *,
        most: int | None = None,
        stops: tuple[str, ...] = (),
    ) -> None:
        """Read an answer.

        Args:
            tokenizer: shows the marks, with `APART` before each.
            functions: names of those that may be called.
            begun: end of the prompt, from the mark on that begins the message which the answer goes on with.
            most: after so many calls everything is dropped.
            stops: from the first of these on too; none is empty.
        """
        self._functions = functions
        self._stops = stops
        self._most = most
        self._counter = _Counter(tokenizer, functions, begun)
        self._call_id = tokenizer.token(CALL)
        self._buffer = tokenizer.shown_bytes(begun).decode("utf-8", "replace")
        self._titled = False
        """Whether the header that is read follows the mark of a beginning."""
        self._header: Header | None = None
        """Of the message whose body is read."""
        self._lead = ""
        """What comes before the body's first text."""
        self._stopper = StopMatcher(stops)
        """Of this body: no stop string is in two."""
        self._arguments: JsonValue | None = None
        self._whole = False
        """Whether the arguments have come to their end."""
        self._loose = ""
        """A text between messages: who reads on knows what it is."""
        self._begun = set[str]()
        """Kinds of which there was something."""
        self._said: list[Said] = []
        self.calls = 0
        """Calls that were told of."""
        self.stop: str | None = None
        """The stop string that ended it."""
        self._read()
        # What the prompt says of a message is not the answer's.
        self._said.clear()
        self._begun.clear()
        self._stopper, self.stop = StopMatcher(stops), None

    @property
    def tokens(self) -> int:
        """Tokens of thoughts, their marks and headers included."""
        return self._counter.tokens

    @property
    def full(self) -> bool:
        """Whether nothing counts any more: after as many calls as there may be, and after a stop string."""
        called = self._most is not None and self.calls >= self._most and (self._whole or self._arguments is None)
        return called or self.stop is not None

    def push(self, text: str, token_ids: Sequence[int] = (), *, last: bool = False) -> Sequence[Said]:
        """What a piece says, in its order. `last`: no more comes."""
        self._counter.count(token_ids)
        self._buffer += text
        self._read()
        if last:
            self._finish(called=bool(token_ids) and token_ids[-1] == self._call_id)
        said, self._said = self._said, []
        return said

    def _read(self) -> None:
        while self._buffer and not self.full and (self._head() if self._header is None else self._body()):
            pass
        if self.full:
            self._buffer = ""

    def _head(self) -> bool:
        """A header, up to the mark after it."""
        found = _AFTER_HEADERS.search(self._buffer)
        if found is None:
            return False
        text, self._buffer = self._buffer[: found.start()], self._buffer[found.end() :]
        if found[1] == MESSAGE:
            if self._loose:
                self._say_all("thought", self._loose)
                self._loose = ""
            if not self.full:
                self._open(header(text, self._functions))
        else:
            self._stray(text, cut=False)
            self._titled = found[1] == START
        return True

    def _stray(self, text: str, *, cut: bool) -> None:
        said = stray(untitled(text, cut=cut) if self._titled else text, cut=cut)
        if not said.text:
            return
        if said.kind is None:
            self._loose += (_BETWEEN if self._loose else "") + said.text
        else:
            self._say_all(said.kind, said.text)

    def _say_all(self, kind: Kind, text: str) -> None:
        self._open(Header(kind))
        self._say(text)
        self._close(called=True)

    def _open(self, of: Header) -> None:
        self._header, self._arguments, self._whole, self._stopper = of, None, False, StopMatcher(self._stops)
        self._lead = (_BETWEEN if of.kind in self._begun else "") + of.recipient

    def _body(self) -> bool:
        """A body, up to a mark in it."""
        text, found = self._buffer, _IN_BODIES.search(self._buffer)
        ends = len(text) - _half_a_mark(text) if found is None else found.start()
        self._say(text[:ends])
        if found is None:
            self._buffer = text[ends:]
            return False
        # Models leave out the end, and the beginning of the next message; other marks are none of a body.
        self._buffer = text[found.start() if found[1] == CHANNEL else found.end() :]
        if found[1] not in (MESSAGE, CONSTRAIN):
            self._close(called=True)
            self._titled = found[1] == START
        return True

    def _say(self, text: str) -> None:
        """More of a body."""
        assert self._header is not None
        kind = self._header.kind
        if kind == "call":
            self._argue(text, self._header)
            return
        text, stopped = self._stopper.push(text)
        self._write(kind, text)
        if stopped:
            self.stop = self._stopper.matched

    def _write(self, kind: Kind, text: str) -> None:
        if text:
            text, self._lead = self._lead + text, ""
            self._add(Said(reasoning=text) if kind == "thought" else Said(text))
            self._begun.add(kind)

    def _add(self, said: Said) -> None:
        before = self._said.pop() if self._said else Said()
        if said.calls or not (before.calls or (before.text and said.reasoning)):
            said = Said(before.text + said.text, before.calls + said.calls, before.reasoning + said.reasoning)
        else:
            self._said.append(before)
        self._said.append(said)

    def _argue(self, text: str, of: Header) -> None:
        """More of a call's body."""
        if self._arguments is None:
            text = text.lstrip()
            if not text:
                return
            if text[0] != "{":
                self._open(Header("text", recipient=of.recipient))
                self._say(text)
                return
            self._arguments = JsonValue()
            self._tell("", of.function)
        at = 0
        if not self._whole:
            at, self._whole = self._arguments.push(text, 0)
            self._tell(text[:at])
        if text[at:].strip() and not self.full:
            self._open(Header("text"))
            self._say(text[at:].lstrip())

    def _tell(self, arguments: str, name: str | None = None) -> None:
        self.calls += name is not None
        if name is not None or arguments:
            self._add(Said(calls=(CallPiece(self.calls - 1, name, arguments),)))

    def _close(self, *, called: bool) -> None:
        """The body has ended. `called`: by a mark."""
        of = self._header
        if of is not None and of.kind == "call" and self._arguments is None:
            # A function without arguments; what is cut before them is no call.
            if called:
                self._tell("{}", of.function)
            else:
                self._open(Header("text"))
                self._write("text", of.recipient.rstrip())
        elif of is not None and of.kind != "call":
            self._write(of.kind, self._stopper.flush())
        self._header, self._arguments, self._whole = None, None, False

    def _finish(self, *, called: bool) -> None:
        if self.full:
            return
        # Who spells a mark in letters can be cut in it.
        rest = self._buffer[: len(self._buffer) - _half_a_mark(self._buffer)]
        if self._header is None:
            self._stray(rest, cut=True)
        else:
            self._say(rest)
            # Arguments that are cut stay those of a call that has no end.
            if self._arguments is None and self._header is not None:
                self._close(called=called)
        if self._loose and not self.full:
            self._say_all("text", self._loose)
        self._buffer, self._loose = "", ""


def _half_a_mark(text: str) -> int:
    """Length of an ending that may become a mark."""
    at = text.rfind(APART)
    return len(text) - at if at >= 0 and any(mark.startswith(text[at:]) for mark in _SHOWN) else 0


class _Counter:
    """Counts the tokens of thoughts."""

    def __init__(self, tokenizer: Tokenizer, functions: Collection[str], begun: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._functions = functions
        self._start, self._end, self._message, self._channel = map(tokenizer.token, (START, END, MESSAGE, CHANNEL))
        self._header: list[int] | None = []
        """Tokens of the header so far; None in a body."""
        self._thought = False
        self._given = 0
        """Tokens of the header that are the prompt's."""
        self.tokens = 0
        self.count(begun)
        self.tokens, self._given = 0, len(self._header or ())

    def count(self, token_ids: Sequence[int]) -> None:
        """Take in tokens."""
        for token in token_ids:
            if token == self._start or (token == self._channel and self._header is None):
                self._header, self._given = [token], 0
            elif self._header is None:
                self.tokens += self._thought
                if token == self._end:
                    self._header = []
            elif token == self._message:
                text = self._tokenizer.shown_bytes(self._header).decode("utf-8", "replace")
                self._thought = header(text, self._functions).kind == "thought"
                self.tokens += self._thought * (len(self._header) + 1 - self._given)
                self._header, self._given = None, 0
            elif token == self._end:
                self._header, self._given = [], 0
            else:
                self._header.append(token)
