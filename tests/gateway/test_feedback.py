"""What apps say of answers: who may, what is kept, and what becomes of it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gateway_site import forget_environment, site
from team_files import key, write_team

from headgate.cache.fingerprint import Fingerprinter
from headgate.gateway.feedback.book import Book
from headgate.gateway.feedback.records import Given, Rating
from headgate.gateway.feedback.service import VOTES_AN_HOUR, Feedback
from headgate.gateway.storage.database import Database
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.feedback import FeedbackMetrics
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.feedback import FeedbackRequest

ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "user": "ann"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret-of-{name}"}


def given(answer_id: str, team: str = "red", entry: str = "", user: str = "") -> Given:
    return Given(answer_id, team, "laptop", user, 5.0, "m", "generated", entry, "hash")


async def ask(client: Any, who: str, **changes: Any) -> str:
    reply = await client.post("/v1/chat/completions", json={**ASK, **changes}, headers=bearer(who))
    assert reply.status == 200, await reply.text()
    return str((await reply.json())["id"])


async def say(client: Any, who: str, **said: Any) -> tuple[int, dict[str, Any]]:
    reply = await client.post("/v1/feedback", json=said, headers=bearer(who))
    return reply.status, await reply.json()


async def test_a_team_rates_its_own_answers_also_after_a_restart(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    for name in ("red", "blue", "grey"):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"secret-of-{name}")
        feedback = {"feedback": {"enabled": False}} if name == "grey" else {}
        write_team(tmp_path / "teams", name, key(name, role="admin"), **feedback)
    parts: dict[str, Any] = {"teams": tmp_path / "teams", "storage": {"folder": str(tmp_path / "data")}}
    async with site(tiny_checkpoint, **parts) as client:
        first, again = await ask(client, "red"), await ask(client, "red")
        status, body = await say(client, "red", id=first, score=0.2, comment="no")
        assert (status, body["score"], body["good"], body["updated"]) == (200, 0.2, False, False)
        assert (body["object"], body["model"], body["cause"], body["end_user"]) == (
            "feedback",
            "tiny",
            "generated",
            "ann",
        )
        status, body = await say(client, "red", id=first, good=True, end_user="bob")
        assert (status, body["score"], body["updated"], body["comment"], body["end_user"]) == (
            200,
            1,
            True,
            None,
            "bob",
        )
        status, body = await say(client, "red", id=again, good=False)
        assert (status, body["cause"]) == (200, "exact")
        for who, answer_id in (("blue", first), ("red", "chatcmpl-none")):
            status, body = await say(client, who, id=answer_id, good=True)
            assert (status, body["error"]["param"], body["error"]["code"]) == (404, "id", "not_found")
        for wrong, param in (({}, "score"), ({"good": True, "score": 1}, "score"), ({"score": 2}, "score")):
            status, body = await say(client, "red", id=first, **wrong)
            assert (status, body["error"]["param"]) == (400, param)
        status, body = await say(client, "grey", id=await ask(client, "grey"), good=True)
        assert (status, body["error"]["code"]) == (403, "not_permitted")
        metrics = await (await client.get("/metrics")).text()
        assert 'headgate_feedback_ratings_total{cause="generated",model="tiny",verdict="bad"} 1.0' in metrics
        assert 'headgate_feedback_score_total{cause="generated",model="tiny"} 0.2' in metrics
        late = await ask(client, "blue")
    async with site(tiny_checkpoint, **parts) as client:
        reply = await client.get(f"/v1/feedback/{first}", headers=bearer("red"))
        assert (await reply.json())["score"] == 1
        assert (await client.get(f"/v1/feedback/{first}", headers=bearer("blue"))).status == 404
        assert (await say(client, "blue", id=late, score=0.5))[0] == 200
        lines = (await (await client.get("/admin/feedback", headers=bearer("red"))).read()).splitlines()
        told = [msgspec.json.decode(line) for line in lines]
        assert [(one["team"], one["id"], one["score"]) for one in told] == [
            ("red", first, 1), ("red", again, 0), ("blue", late, 0.5)
        ]  # fmt: skip
        own = await (await client.get("/admin/feedback?team=blue", headers=bearer("red"))).text()
        assert own.count("\n") == 1


async def test_a_server_may_take_none(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, feedback={"most": 0}) as client:
        status, body = await say(client, "red", id="chatcmpl-1", good=True)
        assert (status, body["error"]["code"]) == (404, "feedback_off")


@pytest.mark.parametrize("kept", [False, True])
async def test_all_that_was_said_is_told_by_its_time_whoever_said_it(tmp_path: Path, *, kept: bool) -> None:
    book = Book(3)
    with closing(Database(tmp_path / "catalog")) as database:
        if kept:
            await book.open(database)
        for at, (team, answer_id) in enumerate(
            [("red", "a"), ("blue", "b"), ("red", "c"), ("blue", "d"), ("red", "a")]
        ):
            await book.rate(Rating(given(answer_id, team), 1.0, "", "", "laptop", float(at)))
        assert [one.answer.id for one in await book.ratings(None)] == ["b", "c", "d", "a"]
        assert [one.answer.id for one in await book.ratings("red")] == ["c", "a"]


async def test_a_team_has_room_for_so_many_and_crowds_out_no_other(tmp_path: Path) -> None:
    database = Database(tmp_path / "catalog.sqlite3")
    kept, fresh = Book(3), Book(3)
    await kept.open(database)
    try:
        for number in range(9):
            for team in ("red", "blue") if number == 0 else ("red",):
                kept.given(RequestRecord("r", "e", team, "laptop", reply_id=f"{team}-{number}", model="m"))
        await kept.write()
        await fresh.open(database)
        for book in (kept, fresh):
            found = [number for number in range(9) if await book.find("red", f"red-{number}") is not None]
            assert found == [6, 7, 8]
            assert await book.find("blue", "blue-0") is not None
            assert await book.find("blue", "red-8") is None
        for number in range(5):
            assert await kept.rate(Rating(given(f"red-{number}"), 1.0, "", "", "", 1.0)) is None
        assert [one.answer.id for one in await fresh.ratings("red")] == ["red-2", "red-3", "red-4"]
    finally:
        database.close()


async def test_the_latest_of_thousands_are_found_again_and_none_by_what_another_says_of_itself(tmp_path: Path) -> None:
    database = Database(tmp_path / "catalog.sqlite3")
    kept, fresh, smaller = Book(1700), Book(1700), Book(5)
    await kept.open(database)
    try:
        for number in range(4000):
            kept.given(RequestRecord("r", "e", "red", "laptop", f"of-{number}", reply_id=f"a-{number}", model="m"))
            if number in (10, 2500):
                await kept.write()
        await kept.write()
        await fresh.open(database)
        await smaller.open(database)
        for book, oldest in ((kept, 2300), (fresh, 2300), (smaller, 3995)):
            for number in (3999, oldest):
                found = await book.find("red", f"a-{number}")
                assert found is not None
                assert (found.id, found.user) == (f"a-{number}", f"of-{number}")
            for other in (f"a-{oldest - 1}", "a-0", "of-3999", "a-399"):
                assert await book.find("red", other) is None
        smaller.given(RequestRecord("r", "e", "red", "laptop", reply_id="a-4000", model="m"))
        await smaller.write()
        assert await fresh.find("red", "a-4000") is not None
    finally:
        database.close()


class Votes:
    """A watch that is told of votes, and lessons that are told of ratings."""

    def __init__(self) -> None:
        self.votes: list[tuple[str, float, bool, str]] = []
        self.taught: list[tuple[str, str, str, float, str]] = []

    async def voted(self, entry: str, served: float, right: bool, voice: str) -> bool:
        self.votes.append((entry, served, right, voice))
        raise ConnectionError("the store is away")

    async def rated(self, team: str, model: str, features: str, score: float, voice: str) -> bool:
        self.taught.append((team, model, features, score, voice))
        raise OSError("the disk is full")


async def test_a_rating_is_a_vote_of_whom_the_answer_was_for_and_a_lesson_and_needs_neither() -> None:
    heard = Votes()
    backend = SimpleNamespace(audits=SimpleNamespace(watch=heard), comparisons=SimpleNamespace(lessons=heard))
    loader = SimpleNamespace(backend=backend, cache=SimpleNamespace(fingerprinter=Fingerprinter(b"0" * 16)))
    metrics = Metrics()
    feedback = Feedback(Book(1000, lambda: 7.0), cast("Any", loader), FeedbackMetrics(metrics.registry), lambda: 7.0)
    red = Principal("red", "laptop")
    for number in range(VOTES_AN_HOUR + 5):
        user = "ann" if number < 2 else ""
        record = RequestRecord("r", "e", "red", "laptop", reply_id=str(number), user=user, model="m")
        record.opened = cast("Any", SimpleNamespace(key=f"entry-{number}"))
        record.chosen = cast("Any", SimpleNamespace(features=f"hash-{number}"))
        feedback.given(record, red)
        # Whoever it is said to be by: of ann's answers the vote is ann's.
        rating, _ = await feedback.rate(red, FeedbackRequest(id=str(number), end_user="eve"), 0.5)
        assert (rating.good, rating.end_user) == (True, "eve")
    assert [vote[:3] for vote in heard.votes[:2]] == [("entry-0", 7.0, True), ("entry-1", 7.0, True)]
    ann, also_ann, eve = (vote[3] for vote in heard.votes[:3])
    assert ann == also_ann != eve
    assert len(heard.votes) == VOTES_AN_HOUR
    assert heard.taught[0] == ("red", "m", "hash-0", 0.5, eve)
    assert b"ann" not in msgspec.json.encode(heard.votes)
