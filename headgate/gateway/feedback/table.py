"""Answers and ratings in the catalog of the data folder: of each team the latest ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from headgate.gateway.feedback.records import Given, Rating

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, team TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL,
    UNIQUE (team, id)
);
CREATE INDEX IF NOT EXISTS answers_of_team ON answers (team, seq);
CREATE TABLE IF NOT EXISTS ratings (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, team TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL,
    UNIQUE (team, id)
);
CREATE INDEX IF NOT EXISTS ratings_of_team ON ratings (team, seq);
"""
_ROWS = 200
"""Answers that are written by one statement."""
_given = msgspec.msgpack.Decoder(Given)
_rating = msgspec.msgpack.Decoder(Rating)


def make(connection: sqlite3.Connection) -> None:
    """Make the tables where they are not there."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


def write(connection: sqlite3.Connection, answers: Sequence[Given], most: int) -> None:
    """Keep answers, and of their teams no more than `most`."""
    # A statement for each row would ask for the interpreter as often, which the event loop has.
    for at in range(0, len(answers), _ROWS):
        some = answers[at : at + _ROWS]
        values = [value for one in some for value in (one.team, one.id, msgspec.msgpack.encode(one))]
        marks = ", ".join(["(?, ?, ?)"] * len(some))
        connection.execute(f"INSERT OR REPLACE INTO answers (team, id, record) VALUES {marks}", values)
    for team in {one.team for one in answers}:
        _trim(connection, "answers", team, most)


def rate(connection: sqlite3.Connection, rating: Rating, most: int) -> Rating | None:
    """Keep a rating in place of the one before, which is given back, and of its team no more than `most`."""
    answer = rating.answer
    before = find_rating(connection, answer.team, answer.id)
    row = answer.team, answer.id, msgspec.msgpack.encode(rating)
    connection.execute("INSERT OR REPLACE INTO ratings (team, id, record) VALUES (?, ?, ?)", row)
    _trim(connection, "ratings", answer.team, most)
    return before


def find_answer(connection: sqlite3.Connection, team: str, answer_id: str) -> Given | None:
    """A team's answer."""
    row = connection.execute("SELECT record FROM answers WHERE team = ? AND id = ?", (team, answer_id)).fetchone()
    return None if row is None else _given.decode(row[0])


def find_rating(connection: sqlite3.Connection, team: str, answer_id: str) -> Rating | None:
    """What was said of a team's answer."""
    row = connection.execute("SELECT record FROM ratings WHERE team = ? AND id = ?", (team, answer_id)).fetchone()
    return None if row is None else _rating.decode(row[0])


def ratings(connection: sqlite3.Connection, team: str | None) -> list[Rating]:
    """Those of a team, or of all, the oldest first."""
    where, values = ("", ()) if team is None else (" WHERE team = ?", (team,))
    rows = connection.execute(f"SELECT record FROM ratings{where} ORDER BY seq", values)
    return [_rating.decode(row[0]) for row in rows]


def _trim(connection: sqlite3.Connection, table: str, team: str, most: int) -> None:
    newest = f"SELECT seq FROM {table} WHERE team = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    connection.execute(f"DELETE FROM {table} WHERE team = ? AND seq <= ({newest})", (team, team, most))
