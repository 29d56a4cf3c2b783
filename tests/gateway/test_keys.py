"""Making, rotating and revoking keys: in files that keep their comments, by command and over HTTP."""

from __future__ import annotations

import errno
import math
import os
import re
import string
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient
from click.testing import CliRunner, Result
from gateway_site import forget_environment, site
from hypothesis import given
from hypothesis import strategies as st
from team_files import key, roster, write_team

from headgate.gateway.cli import main
from headgate.gateway.settings import Settings
from headgate.gateway.teams.key_store import KeyStore, KeyStoreError, rewritten
from headgate.gateway.teams.keys import hash_secret
from headgate.gateway.wire.errors import ApiError

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
BOSS = {"Authorization": "Bearer secret-of-boss"}
COMMENTED = """\
# Ann asked for this one.
team: {name: red}  # the reds
keys:
  # the laptop
  - id: a
    secret: env:A_KEY  # in the vault
  # everybody's
  - {id: b, secret: "env:B_KEY"}

# What follows stays as it is.
limits:
  max_n: 2   # enough
"""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


def store(folder: Path) -> KeyStore:
    return KeyStore(Settings(teams={"folder": str(folder)}), lambda: NOW)


def who(folder: Path, secret: str, after_s: float = 0.0) -> str | None:
    """The id of the key that a secret is, some time from now."""
    environ = {"A_KEY": "secret-of-a", "B_KEY": "secret-of-b"}
    try:
        return roster(folder, environ).authenticate(f"Bearer {secret}", NOW.timestamp() + after_s).key_id
    except ApiError:
        return None


def test_a_key_is_made_with_its_teams_file_and_kept_as_a_hash(tmp_path: Path) -> None:
    folder = tmp_path / "teams"
    folder.mkdir()
    made = store(folder).create("red", "laptop", "admin", NOW + timedelta(days=1))
    assert made.file == folder / "red.yaml"
    assert made.secret not in made.file.read_text()
    assert [who(folder, made.secret, s) for s in (0, 86_399, 86_400)] == ["laptop", "laptop", None]
    (only,) = yaml.safe_load(made.file.read_text())["keys"]
    assert (only["role"], only["created"]) == ("admin", NOW)
    with pytest.raises(KeyStoreError, match=f"a key 'laptop' already, in {made.file}"):
        store(folder).create("blue", "laptop")
    with pytest.raises(KeyStoreError, match=r"'keys\[1\].id'"):
        store(folder).create("red", "no id")
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "red.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_writes_is_the_files_owners_who_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "teams"
    folder.mkdir()
    write_team(folder, "red", {"id": "a", "secret": "env:A_KEY"})
    os.chown(folder, 12345, 12346)
    os.chown(folder / "red.yaml", 12345, 12347)
    (folder / "red.yaml").chmod(0o600)
    for team in ("red", "blue"):
        store(folder).create(team, f"laptop-{team}")
    owners = {p.name: (p.stat().st_uid, p.stat().st_gid) for p in folder.iterdir()}
    assert owners == {".lock": (12345, 12346), "red.yaml": (12345, 12347), "blue.yaml": (12345, 12346)}
    assert (folder / "red.yaml").stat().st_mode & 0o777 == 0o600


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    write_team(kept, "red", {"id": "a", "secret": "env:A_KEY"})
    (folder := tmp_path / "teams").mkdir()
    (folder / "red.yaml").symlink_to(kept / "red.yaml")
    made = store(folder).create("red", "laptop")
    assert (folder / "red.yaml").is_symlink()
    assert "laptop" in (kept / "red.yaml").read_text()
    assert who(folder, made.secret) == "laptop"


def test_edits_keep_what_else_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "red.yaml"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    made = store(tmp_path).create("red", "c")
    text = path.read_text()
    begin, end = COMMENTED.split("\n\n")
    assert text.startswith(begin)
    assert text.endswith(end)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [who(tmp_path, s) for s in ("secret-of-a", "secret-of-b", made.secret)] == ["a", "b", "c"]
    store(tmp_path).revoke("c")
    assert path.read_text() == COMMENTED
    store(tmp_path).revoke("a")
    assert who(tmp_path, "secret-of-a") is None
    assert "# everybody's" in path.read_text()
    store(tmp_path).revoke("b")
    assert yaml.safe_load(path.read_text())["keys"] == []
    assert not roster(tmp_path).open, "a team without keys still closes the server"


def test_a_rotated_secret_holds_on_for_its_grace_and_no_longer(tmp_path: Path) -> None:
    first = store(tmp_path).create("red", "a").secret
    second = store(tmp_path).rotate("a", grace_s=60).secret
    assert [who(tmp_path, first, s) for s in (59, 60)] == ["a.old", None]
    assert who(tmp_path, second, 1e9) == "a"
    third = store(tmp_path).rotate("a").secret
    assert [who(tmp_path, s) for s in (first, second, third)] == [None, None, "a"]
    store(tmp_path).rotate("a", grace_s=60)
    store(tmp_path).revoke("a")
    assert who(tmp_path, third) is None, "what a rotation left goes with the key"


def test_what_cannot_be_done_changes_nothing(tmp_path: Path) -> None:
    path = write_team(tmp_path, "red", key("a"))
    before = path.read_text()
    with pytest.raises(KeyStoreError, match="the secret of 'a' is at env:A_KEY; change it there"):
        store(tmp_path).rotate("a")
    for work in (store(tmp_path).rotate, store(tmp_path).revoke):
        with pytest.raises(KeyStoreError, match="there is no key 'x'; the keys are a"):
            work("x")
    made, other = (
        store(tmp_path).create("red", "b").file.read_text(),
        write_team(tmp_path, "blue", {**key("b"), "id": "b.old"}),
    )
    with pytest.raises(KeyStoreError, match=rf"the old secret would be the key 'b.old', which {other} has"):
        store(tmp_path).rotate("b", grace_s=1)
    for grace_s in (math.nan, math.inf, -1, 1e300):
        with pytest.raises(KeyStoreError, match="the old secret cannot hold for"):
            store(tmp_path).rotate("b", grace_s)
    assert path.read_text() == made
    other.unlink()
    store(tmp_path).revoke("b")
    with pytest.raises(KeyStoreError, match=r"'teams.folder' is null"):
        KeyStore(Settings(teams={"folder": None})).create("red", "b")
    assert path.read_text() == before


NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=3)
ENTRIES = st.lists(st.fixed_dictionaries({"id": NAMES, "hash": NAMES}), max_size=4, unique_by=lambda e: e["id"])


@given(before=ENTRIES, after=ENTRIES, flow=st.booleans(), tail=st.sampled_from(["", "limits: {max_n: 2} # two\n"]))
def test_what_is_written_is_what_is_meant_however_the_file_looks(
    before: list[dict[str, str]], after: list[dict[str, str]], *, flow: bool, tail: str
) -> None:
    keys = yaml.safe_dump({"keys": before}, default_flow_style=flow or None, sort_keys=False)
    text = f"# top\nteam: {{name: red}}\n{'keys: ' + str(before) + chr(10) if flow else keys}{tail}"
    made = rewritten(text, after)
    assert yaml.safe_load(made) == {**yaml.safe_load(text), "keys": after}
    assert made.startswith("# top\n")


@pytest.mark.parametrize(
    "text",
    [
        "team: {name: red}\nkeys:\n- &one\n  id: a\n  hash: A\n  role: admin\n- <<: *one\n  id: b\n  hash: B\n",
        '{"team": {"name": "red"}, "keys": [{"id": "a", "hash": "A"}, {"id": "b", "hash": "B"}]}',
        "---\nteam: {name: red}\nkeys:\n- id: a\n  hash: >-\n    A\n- id: b\n  hash: B\n...\n",
        "team: {name: red}\nkeys:\n  - id: b\n    hash: B\n  - id: a\n    hash: |-\n      A\nlimits: {max_n: 1}\n",
    ],
)
def test_files_of_every_form_are_edited(tmp_path: Path, text: str) -> None:
    path = tmp_path / "red.yaml"
    for letter in "AB":
        text = re.sub(rf"\b{letter}\b", hash_secret(letter), text)
    path.write_text(text)
    before = yaml.safe_load(path.read_text())
    made = store(tmp_path).create("red", "c").secret
    again = store(tmp_path).rotate("a", grace_s=60).secret
    assert [who(tmp_path, secret) for secret in (made, again)] == ["c", "a"]
    for key_id in ("c", "a"):
        store(tmp_path).revoke(key_id)
    after = yaml.safe_load(path.read_text())
    (kept,) = after["keys"]
    assert (kept["id"], after.keys()) == ("b", before.keys())
    assert kept == next(entry for entry in before["keys"] if entry["id"] == "b")


def command(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--teams", str(folder)])


def test_the_commands_do_so(tmp_path: Path) -> None:
    folder = tmp_path / "teams"
    folder.mkdir()
    made = command(folder, "create", "laptop", "--team", "red", "--expires", "2027-06-30")
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert who(folder, secret) == "laptop"
    write_team(folder, "blue", {"id": "slow", "hash": hash_secret("x"), "limits": {"max_n": 1, "concurrency": 3}})
    listed = command(folder, "list").output
    assert "hash  concurrency=3  max_n=1\n" in listed
    assert "laptop" in listed
    assert "2027-06-30 00:00:00+0000" in listed
    assert secret not in listed
    again = command(folder, "rotate", "laptop").stdout.strip()
    assert [who(folder, s) for s in (secret, again)] == [None, "laptop"]
    assert "is gone from" in command(folder, "revoke", "laptop").output
    assert who(folder, again) is None
    for arguments, said in (
        (("revoke", "laptop"), "there is no key 'laptop'; the keys are slow"),
        (("create", "x", "--team", "red", "--expires", "soon"), "'soon' is no time"),
    ):
        refused = command(folder, *arguments)
        assert refused.exit_code != 0
        assert said in refused.output


@pytest.fixture
async def client(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestClient[Any, Any]]:
    monkeypatch.setenv("BOSS_KEY", "secret-of-boss")
    write_team(tmp_path / "teams", "ops", key("boss", role="admin"))
    async with site(tiny_checkpoint, teams=tmp_path / "teams") as client:
        yield client


def test_a_configuration_that_is_wrong_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text("servr: {}\n")
    for arguments in (["list"], ["revoke", "laptop"]):
        told = CliRunner().invoke(main, ["keys", *arguments, "--config", str(tmp_path / "main.yaml")])
        assert (told.exit_code, "main.yaml:1: unknown key 'servr'" in told.output) == (1, True), told.output


async def test_administration_over_http_does_so_at_once(client: TestClient[Any, Any]) -> None:
    async def admin(path: str, headers: dict[str, str] = BOSS, **body: Any) -> tuple[int, dict[str, Any]]:
        response = await client.post(f"/admin/keys{path}", json=body, headers=headers)
        return response.status, await response.json()

    async def allowed(secret: str) -> int:
        return (await client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})).status

    status, made = await admin("", team="red", id="r")
    assert (status, made["team"], await allowed(made["secret"])) == (200, "red", 200)
    mine = {"Authorization": f"Bearer {made['secret']}"}
    assert (await admin("/revoke", mine, id="boss"))[0] == 403, "a member administers nothing"
    listed = await (await client.get("/admin/keys", headers=BOSS)).json()
    told = [(k["id"], k["team"], k["role"], k["kept"], k["expired"]) for k in listed["data"]]
    assert told == [("boss", "ops", "admin", "reference", False), ("r", "red", "member", "hash", False)]
    _, rotated = await admin("/rotate", id="r")
    assert [await allowed(s) for s in (made["secret"], rotated["secret"])] == [401, 200]
    for at, expires in enumerate(("2127-01-31", "2127-01-31T00:00:00Z", "2127-01-31T02:00:00+02:00")):
        assert (await admin("", team="red", id=f"e{at}", expires=expires))[0] == 200
    listed = await (await client.get("/admin/keys", headers=BOSS)).json()
    assert {k["expires"] for k in listed["data"] if k["id"][0] == "e"} <= {
        "2127-01-31T00:00:00Z",
        "2127-01-31T02:00:00+02:00",
    }
    assert await admin("/revoke", id="r") == (200, {"id": "r", "revoked": True})
    assert await allowed(rotated["secret"]) == 401
    for path, body, status, said in (
        ("", {"team": "red", "id": "boss"}, 409, "there is a key 'boss' already"),
        ("/rotate", {"id": "r"}, 409, "there is no key 'r'"),
        ("", {"team": "red"}, 400, "Missing required parameter: 'id'"),
        ("", {"team": "red", "id": "y", "expires": "soon"}, 400, "Invalid 'expires': 'soon'"),
        ("", {"team": "../x", "id": "y"}, 400, "'team'"),
        ("/revoke", {"id": "r", "now": True}, 400, "Unknown parameter: 'now'"),
        ("/rotate", {"id": "boss", "grace_s": 1e12}, 400, "'grace_s'"),
    ):
        refused, reply = await admin(path, **body)
        assert (refused, said in reply["error"]["message"]) == (status, True), reply


async def test_what_would_not_hold_is_not_done(
    client: TestClient[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await (await client.post("/admin/keys", json={"team": "red", "id": "r"}, headers=BOSS)).json()
    files = tmp_path / "teams"
    # Each file is good by itself, and this one's secret is nowhere: all of them hold as they were.
    write_team(files, "blue", key("blue"))
    before = (files / "red.yaml").read_text()
    for path, body in (("", {"team": "red", "id": "s"}), ("/rotate", {"id": "r"}), ("/revoke", {"id": "r"})):
        reply = await client.post(f"/admin/keys{path}", json=body, headers=BOSS)
        error = (await reply.json())["error"]
        assert (reply.status, error["code"]) == (409, "bad_configuration"), error
        assert "blue.yaml" in error["message"]
        assert "BLUE_KEY" in error["message"]
    assert (files / "red.yaml").read_text() == before
    assert (await client.get("/v1/models", headers={"Authorization": f"Bearer {made['secret']}"})).status == 200
    monkeypatch.setenv("BLUE_KEY", "secret-of-blue")
    assert (await client.post("/admin/keys/revoke", json={"id": "r"}, headers=BOSS)).status == 200
    assert (await client.get("/v1/models", headers={"Authorization": f"Bearer {made['secret']}"})).status == 401


async def test_a_full_disk_is_told_as_one(client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        reply = await client.post("/admin/keys", json={"team": "red", "id": "r"}, headers=BOSS)
    error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (507, "storage_failed")
    assert "red.yaml cannot be written: No space left on device" in error["message"]
    assert (await client.post("/admin/keys", json={"team": "red", "id": "r"}, headers=BOSS)).status == 200
