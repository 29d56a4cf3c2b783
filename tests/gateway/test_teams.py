"""Team files: what they may say, whom their keys stand for, and what two of them may not both claim."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from team_files import key, roster, write_team

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.lifecycle import Lifecycle, State
from headgate.gateway.settings import Settings
from headgate.gateway.teams.admission import scopes_of
from headgate.gateway.teams.keys import Principal, hash_secret, new_secret
from headgate.gateway.teams.registry import Roster, Teams
from headgate.gateway.teams.reload import Reloader
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.wire.errors import ApiError

SECRETS = {"A_KEY": "key-of-a", "B_KEY": "key-of-b"}
MODELS = [{"id": "s", "path": "x", "tier": "small"}, {"id": "l", "path": "y", "tier": "large"}]


def problems(folder: Path, **sections: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        roster(folder, SECRETS, **sections)
    return caught.value.problems


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


@pytest.fixture
def two(tmp_path: Path) -> Roster:
    write_team(tmp_path, "red", key("a"))
    write_team(tmp_path, "blue", key("b", role="admin"))
    return roster(tmp_path, SECRETS)


def test_without_team_files_everybody_is_the_default_team(tmp_path: Path) -> None:
    teams = Teams(roster(tmp_path, defaults={"limits": {"max_n": 3}}))
    who = teams.authenticate(None)
    assert (who, teams.open) == (Principal("default", None), True)
    assert who.policy.limits.max_n == 3


def test_a_key_names_its_team_and_role(two: Roster) -> None:
    assert not two.open
    assert two.authenticate("Bearer key-of-a", 0) == Principal("red", "a")
    assert two.authenticate("bearer  key-of-b", 0) == Principal("blue", "b", admin=True)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic key-of-a", "key-of-a", "Bearer key-of-c"])
def test_other_headers_are_refused_without_telling_the_key(two: Roster, header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        two.authenticate(header, 0)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert "key-of-c" not in caught.value.message


def test_a_hashed_key_is_known_by_its_secret_only(tmp_path: Path) -> None:
    secret, other = new_secret(), new_secret()
    kept = hash_secret(secret)
    assert kept != hash_secret(secret), "each hash has a salt of its own"
    path = write_team(tmp_path, "red", {"id": "a", "hash": kept}, {"id": "b", "hash": hash_secret(other)})
    assert secret not in path.read_text()
    found = roster(tmp_path)
    for _ in "twice":
        assert found.authenticate(bearer(secret), 0).key_id == "a"
        assert found.authenticate(bearer(other), 0).key_id == "b"
    for wrong in (kept, secret[:-1], secret + "0"):
        with pytest.raises(ApiError):
            found.authenticate(bearer(wrong), 0)


def test_a_key_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key-of-a\n")
    folder = tmp_path / "teams"
    write_team(folder, "red", {"id": "a", "secret": f"file:{tmp_path / 'secret'}"})
    assert roster(folder).authenticate("Bearer key-of-a", 0).key_id == "a"


@pytest.mark.parametrize(
    "expires",
    ["2027-01-01T00:00:00+00:00", "2027-01-01", date(2027, 1, 1), "2027-01-01T00:00:00", "2027-01-01T02:00:00+02:00"],
)
def test_a_key_is_refused_from_the_moment_it_expires(tmp_path: Path, expires: Any) -> None:
    write_team(tmp_path, "red", key("a", expires=expires))
    found, end = roster(tmp_path, SECRETS), 1798761600.0
    assert found.authenticate("Bearer key-of-a", end - 0.001).key_id == "a"
    with pytest.raises(ApiError, match=r"The API key 'a' expired at 2027-01-01T00:00:00\+00:00") as caught:
        found.authenticate("Bearer key-of-a", end)
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("text", "line", "hints"),
    [
        ("team: {name: red, ower: me}\n", 1, ["unknown key 'team.ower'", "'owner'"]),
        ("team: {name: red}\nlimits:\n  requests_per_minut: 5\n", 3, ["'limits.requests_per_minut'", "_minute'"]),
        ("team: {name: red}\nlimits:\n  concurrency: 0\n", 3, ["'limits.concurrency' is 0", "greater than"]),
        ("team: {name: red}\nbudgets: {timezone: Mars}\n", 2, ["no time zone 'Mars'", "Europe/Berlin"]),
        ("team: {name: red}\nkeys:\n  - {id: a}\n", 3, ["'a' needs either 'hash' or 'secret'"]),
        (
            "team: {name: red}\nkeys:\n  - {id: a, secret: hunter2}\n",
            3,
            ["'keys[0].secret'", "expected env:NAME"],
        ),
        ("team: {name: red}\nkeys:\n  - {id: a, hash: 'sha256:00'}\n", 3, ["'keys[0].hash'"]),
        ("team: {name: red}\nkeys:\n  - {id: a, secret: 'env:NOBODY'}\n", 3, ["the variable NOBODY is not set"]),
        ("team: {name: red}\nkeys:\n  - {id: a, secret: 'file:/no/where'}\n", 3, ["/no/where cannot be read"]),
        ("team: {name: red}\nkeys: [{id: a, secret: 'env:A_KEY', expires: soon}]\n", 2, ["expires", "valid datetime"]),
        ("team: {name: red}\nkeys: [{id: a, secret: 'env:A_KEY'}, {id: a, secret: 'env:B_KEY'}]\n", 2, ["given twice"]),
        ("team: {name: red}\nteam: {name: blue}\n", 2, ["the key 'team' is given twice"]),
        (
            "team: {name: red}\nkeys:\n  - {id: a, secret: 'env:A_KEY', expires: 2026-06-31}\n",
            3,
            ["not YAML: '2026-06-31' is no valid timestamp"],
        ),
        ("limits: {}\n", 1, ["key 'team' is missing"]),
        ("team: {name: red}\nmodels:\n  allow: [m]\n", 3, ["'models.allow[0]'", "no model 'm'"]),
        ("team: {name: red}\nmodels:\n  aliases: {gpt: larg}\n", 3, ["no model 'larg'", "Did you mean 'large'"]),
        ("team: {name: red}\nmodels:\n  aliases: {s: large}\n", 3, ["'s' already names a model"]),
        ("team: {name: red}\nmodels:\n  default: gpt\n", 3, ["'models.default'", "no model 'gpt'"]),
        ("team: {name: red}\nmodels:\n  deny: [l]\n  aliases: {gpt: l}\n", 4, ["'l' may not be asked"]),
        ("team: {name: red}\nmodels: {allow: [s]}\nrouting:\n  chain: [l]\n", 4, ["the models allowed are s"]),
        ("team: {name: red}\ncache:\n  max_error: 0.5\n", 3, ["0.5 is above cache.semantic.max_error", "0.02"]),
        (
            "team: {name: red}\nmodels: {allow: [s]}\nkeys:\n  - {id: a, secret: 'env:A_KEY', models: [l]}\n",
            4,
            ["'keys[0].models[0]'", "not among the models of the key's team, which are s"],
        ),
        (
            "team: {name: red}\nmodels: {deny: [s]}\nbudgets:\n  daily_usd: 1\n  on_exceed: downgrade\n",
            5,
            ["'budgets.on_exceed'", "no model allowed has it", "block and queue"],
        ),
        (
            "team: {name: red}\nbudgets: {daily_device_s: 1, on_exceed: downgrade}\n"
            "keys:\n  - {id: a, secret: 'env:A_KEY', models: [l]}\n",
            4,
            ["'keys[0].models'", "downgrade to the tier small"],
        ),
    ],
)
def test_refusals_name_file_line_key_and_what_is_accepted(
    tmp_path: Path, text: str, line: int, hints: list[str]
) -> None:
    (tmp_path / "red.yaml").write_text(text)
    found = problems(tmp_path, models=MODELS)
    assert f"line {line}" in found[0] or f"red.yaml:{line}:" in found[0]
    for hint in hints:
        assert hint in found[0]
    assert "hunter2" not in found[0]


@pytest.mark.parametrize(
    "written",
    [
        "- {id: k, hash: hg-0123456789}",
        "- hg-0123456789",
        "- {id: k, secret: hg-0123456789}",
        "- {id: k, secret: [hg-0123456789]}",
        "- {id: k, role: hg-0123456789, secret: 'env:A_KEY'}",
        "- {id: k, secret: 'env:A_KEY', expires: hg-0123456789}",
        "- {id: k, secret: 'env:A_KEY', limits: hg-0123456789}",
        "- {id: [hg-0123456789], secret: 'env:A_KEY'}",
        "hg-0123456789",
    ],
)
def test_a_secret_is_not_told_wherever_it_was_written(tmp_path: Path, written: str) -> None:
    (tmp_path / "red.yaml").write_text(f"team: {{name: red}}\nkeys:\n  {written}\n")
    found = "; ".join(problems(tmp_path))
    assert f"{tmp_path / 'red.yaml'}:" in found
    assert "'keys" in found
    assert "0123" not in found


def test_only_who_can_spend_needs_what_a_budget_downgrades_to(tmp_path: Path) -> None:
    write_team(tmp_path, "red", models={"deny": ["s"]}, budgets={"on_exceed": "downgrade"})
    budgets = {"daily_usd": 1, "on_exceed": "downgrade"}
    write_team(tmp_path, "blue", key("a", models=["all-minilm-l6-v2"]), key("b", models=["s"]), budgets=budgets)
    assert roster(tmp_path, SECRETS, models=MODELS).authenticate(bearer("key-of-b"), 0).team == "blue"


def test_a_keys_caps_are_within_its_teams(tmp_path: Path) -> None:
    own = {"requests_per_minute": 5, "max_tokens": 10, "max_n": 9}
    write_team(tmp_path, "red", key("a", limits=own), key("b"), limits={"max_n": 3, "requests_per_minute": 60})
    found = roster(tmp_path, SECRETS)
    first, second = (found.authenticate(bearer(SECRETS[name]), 0) for name in SECRETS)
    caps = [
        (w.policy.limits.max_tokens, w.policy.limits.max_n, w.policy.limits.max_context_tokens) for w in (first, second)
    ]
    assert caps == [(10, 3, None), (None, 3, None)]
    assert [s.name for s in scopes_of(first, None)] == ["team red", "key a"]
    assert [(s.name, s.rates.rpm) for s in scopes_of(second, "ann")] == [("team red", 60)]


def test_two_files_that_claim_one_team_or_key_are_both_named(tmp_path: Path) -> None:
    first = write_team(tmp_path, "a", key("a"), {"id": "c", "hash": hash_secret("key-of-b")})
    second = write_team(tmp_path, "b", {"id": "a", "secret": "env:B_KEY"}, {"id": "d", "secret": "env:A_KEY"})
    second.write_text(second.read_text().replace("name: b", "name: a"))
    found = problems(tmp_path)
    assert len(found) == 4
    for problem in found:
        assert str(first) in problem
        assert problem.startswith(str(second))
    told = " ".join(found)
    assert "the team 'a' is also that of" in told
    assert "the key 'a' is also given by" in told
    assert told.count("has the same secret") == 2
    for secret in SECRETS.values():
        assert secret not in told


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    write_team(tmp_path, "red", limits={"max_n": 0})
    write_team(tmp_path, "blue", key("c"), limit={})
    (tmp_path / "half.yaml").write_text("team: {name: gre")
    assert len(problems(tmp_path)) == 3


def test_a_file_says_what_is_otherwise_than_the_defaults_key_by_key(tmp_path: Path) -> None:
    defaults = {
        "limits": {"requests_per_minute": 60, "concurrency": 8, "per_user": {"concurrency": 2}},
        "models": {"aliases": {"gpt": "small"}, "deny": ["l"]},
        "budgets": {"soft_percent": 50},
    }
    mine = {"requests_per_minute": None, "max_n": 2, "per_user": {"tokens_per_minute": 9}}
    write_team(tmp_path, "red", limits=mine, models={"aliases": {"o1": "large"}})
    write_team(tmp_path, "blue")
    found = roster(tmp_path, models=MODELS, defaults=defaults)
    red, blue = (found.teams[name].policy for name in ("red", "blue"))
    assert (red.limits.requests_per_minute, red.limits.concurrency, red.limits.max_n) == (None, 8, 2)
    assert (red.limits.per_user.concurrency, red.limits.per_user.tokens_per_minute) == (2, 9)
    assert red.models.aliases == {"o1": "large"}, "a mapping of names is one value"
    assert (red.models.deny, red.budgets.soft_percent) == (("l",), 50)
    assert blue == TeamPolicy(**defaults, logging={"content": "off"}), "which the main file says"


def test_the_revision_changes_with_what_files_say_and_not_with_how(tmp_path: Path) -> None:
    path = write_team(tmp_path, "red", limits={"max_n": 2})
    before = roster(tmp_path).revision
    path.write_text(f"# A comment.\n{path.read_text()}\n")
    assert roster(tmp_path).revision == before
    write_team(tmp_path, "red", limits={"max_n": 3})
    assert roster(tmp_path).revision != before
    assert roster(tmp_path, server={"port": 1}).revision != roster(tmp_path).revision


def test_hidden_and_other_files_are_none_of_a_team(tmp_path: Path) -> None:
    for name in (".red.yaml", "red.yaml~", "red.yaml.example", "notes.md"):
        (tmp_path / name).write_text("{")
    assert roster(tmp_path).open


def test_a_folder_that_is_named_must_be_there(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "nowhere")
    assert "nowhere: there is no such folder, but 'teams.folder' names it" in problem


def test_a_server_that_asked_for_keys_does_not_open_when_the_files_go(two: Roster) -> None:
    teams = Teams(two, clock=lambda: 0.0)
    teams.replace(Roster(TeamPolicy()))
    assert not teams.open
    with pytest.raises(ApiError, match="Incorrect API key"):
        teams.authenticate("Bearer key-of-a")
    opened = Teams(Roster(TeamPolicy()), clock=lambda: 0.0)
    opened.replace(two)
    with pytest.raises(ApiError):
        opened.authenticate(None)
    assert opened.authenticate("Bearer key-of-a").team == "red"


def test_a_policy_is_that_of_now_where_one_asks_for_it(two: Roster, tmp_path: Path) -> None:
    teams = Teams(two, clock=lambda: 0.0)
    before = teams.authenticate("Bearer key-of-a")
    write_team(tmp_path, "red", key("a"), limits={"max_n": 7})
    teams.replace(roster(tmp_path, SECRETS))
    assert before.policy.limits.max_n is None, "a request that runs goes on under what it began with"
    assert teams.authenticate("Bearer key-of-a").policy.limits.max_n == 7


def test_the_example_is_a_team_file_and_not_active(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "config" / "teams" / "research.yaml.example"
    assert roster(example.parent).open
    (tmp_path / "research.yaml").write_text(example.read_text())
    found = roster(tmp_path, {"RESEARCH_LAPTOP_KEY": "a", "RESEARCH_NIGHTLY_KEY": "b"})
    assert found.principal(None, "nightly").models == {"demo-student"}
    assert found.teams["research"].policy.models.aliases["gpt-4o"] == "large"


class Told(Lifecycle):
    """Tells what parts become."""

    def __init__(self) -> None:
        super().__init__()
        self.states: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def set(self, part: str, state: State, detail: str = "", *, required: bool = True) -> None:
        super().set(part, state, detail, required=required)
        self.states.put_nowait((state, detail))


async def test_what_could_not_be_read_is_read_again_though_no_file_changed(two: Roster, tmp_path: Path) -> None:
    write_team(tmp_path / "others", "red", key("b"))
    teams, lifecycle, revoked = Teams(two), Told(), roster(tmp_path / "others", SECRETS)
    found: list[Roster | ConfigError] = [two, *[ConfigError(["red.yaml: Too many open files"])] * 3, revoked]

    def read(_: Settings) -> Roster:
        one = found.pop(0)
        if isinstance(one, ConfigError):
            raise one
        return one

    settings = Settings(teams={"folder": str(tmp_path)})
    reloader = Reloader(settings, teams, read, lifecycle, CollectorRegistry())
    await reloader.look()
    write_team(tmp_path, "red", key("b"))
    for _ in range(4):
        await reloader.look()
    assert teams.roster is revoked
    states = [lifecycle.states.get_nowait()[0] for _ in range(lifecycle.states.qsize())]
    assert states == ["ready", "failed", "ready"], "the same fault is told once"
    await reloader.look()


async def test_what_takes_long_to_read_is_not_read_all_the_time(two: Roster, tmp_path: Path) -> None:
    now, reads = 0.0, 0

    def read(_: Settings) -> Roster:
        nonlocal now, reads
        now, reads = now + 0.5, reads + 1
        raise ConfigError(["red.yaml: unknown key"])

    settings = Settings(teams={"folder": str(tmp_path)})
    reloader = Reloader(settings, Teams(two), read, Lifecycle(), CollectorRegistry(), clock=lambda: now)
    for count in (1, 1, 1):
        await reloader.look()
        assert reads == count
    now += 10
    await reloader.look()
    assert reads == 2, "though nothing changed: what is wrong may lie elsewhere"
    write_team(tmp_path, "red", key("b"))
    await reloader.look()
    assert reads == 3
    reloader.ask()
    await reloader.look()
    assert reads == 4


async def test_following_goes_on_whatever_reading_ends_in(two: Roster, tmp_path: Path) -> None:
    write_team(tmp_path / "others", "red", key("b"))
    teams, lifecycle, revoked = Teams(two), Told(), roster(tmp_path / "others", SECRETS)
    found: list[Roster | Exception] = [RuntimeError("a fault"), revoked]

    def read(_: Settings) -> Roster:
        one = found.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    settings = Settings(teams={"folder": str(tmp_path)})
    reloader = Reloader(settings, teams, read, lifecycle, CollectorRegistry())
    following = asyncio.create_task(reloader.follow())
    try:
        async with asyncio.timeout(10):
            assert (await lifecycle.states.get())[0] == "ready"
            reloader.ask()
            state, detail = await lifecycle.states.get()
            assert (state, teams.roster) == ("failed", two)
            assert "RuntimeError" in detail
            reloader.ask()
            assert (await lifecycle.states.get())[0] == "ready"
            assert teams.roster is revoked
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
