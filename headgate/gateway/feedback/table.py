"""Answers and ratings in the catalog of the data folder: of each team the latest ones.

Thousands of answers may be given in a second and hardly one of them is asked for again, so they are cheap to write and
slow to find: a row has many of them, and there is no index by their ids. With a row for each and such an index, SQLite
has the processor for many milliseconds of every second, in which the event loop may have no other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from headgate.gateway.feedback.records import Given, Rating

_SCHEMA = """
CREATE TABLE IF NOT EXISTS given (
    team TEXT NOT NULL, last INTEGER NOT NULL, records BLOB NOT NULL, PRIMARY KEY (team, last)
);
CREATE TABLE IF NOT EXISTS ratings (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, team TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL,
    UNIQUE (team, id)
);
CREATE INDEX IF NOT EXISTS ratings_of_team ON ratings (team, seq);
"""
_BLOCK = 1000
"""Answers in a row at most. Its `last` is the number that the last of them has among its team's."""
_block = msgspec.msgpack.Decoder(list[Given])
_rating = msgspec.msgpack.Decoder(Rating)


def make(connection: sqlite3.Connection) -> None:
    """Make the tables where they are not there."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


def write(connection: sqlite3.Connection, answers: Mapping[str, Sequence[Given]], most: int) -> None:
    """Keep answers of teams, and the blocks that have one of the `most` latest of each of them."""
    for team, given in answers.items():
        last = _last(connection, team)
        for at in range(0, len(given), _BLOCK):
            block = given[at : at + _BLOCK]
            last += len(block)
            connection.execute("INSERT INTO given VALUES (?, ?, ?)", (team, last, msgspec.msgpack.encode(block)))
        connection.execute("DELETE FROM given WHERE team = ? AND last <= ?", (team, last - most))


def rate(connection: sqlite3.Connection, rating: Rating, most: int) -> Rating | None:
    """Keep a rating in place of the one before, which is given back, and of its team no more than `most`."""
    answer = rating.answer
    before = find_rating(connection, answer.team, answer.id)
    row = answer.team, answer.id, msgspec.msgpack.encode(rating)
    connection.execute("INSERT OR REPLACE INTO ratings (team, id, record) VALUES (?, ?, ?)", row)
    newest = "SELECT seq FROM ratings WHERE team = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    trim = f"DELETE FROM ratings WHERE team = ? AND seq <= ({newest})"
    connection.execute(trim, (answer.team, answer.team, most))
    return before


def find_answer(connection: sqlite3.Connection, team: str, answer_id: str, most: int) -> Given | None:
    """One of a team's `most` latest answers. All of their blocks are searched, which takes some milliseconds."""
    oldest = _last(connection, team) - most
    having = "SELECT last, records FROM given WHERE team = ? AND last > ? AND instr(records, ?) ORDER BY last DESC"
    for last, records in connection.execute(having, (team, oldest, answer_id.encode())):
        # It may be there as something else than an id.
        found = next((one for one in reversed(_block.decode(records)[oldest - last :]) if one.id == answer_id), None)
        if found is not None:
            return found
    return None


def find_rating(connection: sqlite3.Connection, team: str, answer_id: str) -> Rating | None:
    """What was said of a team's answer."""
    row = connection.execute("SELECT record FROM ratings WHERE team = ? AND id = ?", (team, answer_id)).fetchone()
    return None if row is None else _rating.decode(row[0])


def ratings(connection: sqlite3.Connection, team: str | None) -> list[Rating]:
    """Those of a team, or of all, the oldest first."""
    where, values = ("", ()) if team is None else (" WHERE team = ?", (team,))
    rows = connection.execute(f"SELECT record FROM ratings{where} ORDER BY seq", values)
    return [_rating.decode(row[0]) for row in rows]


def _last(connection: sqlite3.Connection, team: str) -> int:
    """How many answers of a team were ever kept."""
    found = connection.execute("SELECT max(last) FROM given WHERE team = ?", (team,)).fetchone()
    return int(found[0] or 0)
