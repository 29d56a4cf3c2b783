"""`/v1/files`: what is kept, for whom, and what is refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import FormData
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from hypothesis import given
from hypothesis import strategies as st
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.parts import StartError
from headgate.gateway.storage.folder import Storage, default_folder, open_storage
from headgate.gateway.storage.sections import StorageSection
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import LedgerFile, read_usage
from headgate.gateway.wire.errors import ApiError

RED, BLUE = {"Authorization": "Bearer red-secret"}, {"Authorization": "Bearer blue-secret"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    for team in ("red", "blue"):
        monkeypatch.setenv(f"{team.upper()}_KEY", f"{team}-secret")


@asynccontextmanager
async def serving(checkpoint: Path, folder: Path, **limits: Any) -> AsyncIterator[TestClient[Any, Any]]:
    with TemporaryDirectory() as teams:
        for team in ("red", "blue"):
            write_team(Path(teams), team, key(team))
        async with site(checkpoint, storage={"folder": str(folder), **limits}, teams=Path(teams)) as client:
            yield client


async def test_a_data_folder_that_is_taken_away_is_made_anew(
    tiny_checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "of" / "data"
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    async with serving(tiny_checkpoint, data) as client:
        for taken in (False, True):
            if taken:
                shutil.rmtree(tmp_path / "of")
            listed = await (await client.get("/v1/files", headers=RED)).json()
            assert listed["data"] == [], "those that were taken away are gone"
            reply = await client.post("/v1/files", data=form(b"{}"), headers=RED)
            assert reply.status == 200
            answer = await client.post("/v1/chat/completions", json=chat, headers={**RED, "Cache-Control": "no-store"})
            rated = {"id": (await answer.json())["id"], "score": 1}
            assert (await client.post("/v1/feedback", json=rated, headers=RED)).status == 200
            # Of what was not written yet nothing is lost: the next write makes the file.
            gateway = client.app[keys.ADMISSION].accounts.ledger.gateway
        told = [record.getMessage() for record in caplog.records if "taken away" in record.getMessage()]
        assert len(told) == 2, "the catalog and the ledger, each once"
        with pytest.raises(OSError, match="used by another server"):
            Storage(data, StorageSection())
    (row,) = read_usage(data / FILE, ("team",), None, None)
    assert row[:2] == ("red", 1)
    assert LedgerFile(data / FILE).gateway() == gateway
    assert len(list((data / "files").iterdir())) == 1


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def form(data: bytes, *, purpose: str | None = "batch", name: str = "in.jsonl", **more: str) -> FormData:
    made = FormData()
    if purpose is not None:
        made.add_field("purpose", purpose)
    for field, value in more.items():
        made.add_field(f"expires_after[{field}]", value)
    made.add_field("file", data, filename=name)
    return made


async def put(client: TestClient[Any, Any], data: bytes, headers: dict[str, str] = RED, **more: str) -> Any:
    return await (await client.post("/v1/files", data=form(data, **more), headers=headers)).json()


async def test_a_file_is_kept_told_read_and_deleted(tiny_checkpoint: Path, tmp_path: Path) -> None:
    data = b"x" * 600_000 + b"\x00\r\n--end"
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        stored = await put(client, data, name="../../etc/passwd")
        assert (stored["object"], stored["bytes"], stored["purpose"]) == ("file", len(data), "batch")
        assert stored["filename"] == "..%2F..%2Fetc%2Fpasswd", "told again, as the client quoted it"
        url = f"/v1/files/{stored['id']}"
        assert await (await client.get(url, headers=RED)).json() == stored
        content = await client.get(f"{url}/content", headers=RED)
        assert await content.read() == data
    assert [name for name in below(tmp_path) if "sqlite3" not in name] == [f"data/files/{stored['id']}", "data/lock"]
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        assert await (await client.get(url, headers=RED)).json() == stored, "a restart forgets nothing"
        assert (await (await client.delete(url, headers=RED)).json()) == {
            "id": stored["id"], "deleted": True, "object": "file",
        }  # fmt: skip
        for reply in (await client.get(url, headers=RED), await client.delete(url, headers=RED)):
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")
    assert not list((tmp_path / "data" / "files").iterdir())


async def test_teams_do_not_see_each_others_files(tiny_checkpoint: Path, tmp_path: Path) -> None:
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        stored = await put(client, b"red")
        url = f"/v1/files/{stored['id']}"
        for reply in (
            await client.get(url, headers=BLUE),
            await client.get(f"{url}/content", headers=BLUE),
            await client.delete(url, headers=BLUE),
        ):
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")
        assert (await (await client.get("/v1/files", headers=BLUE)).json())["data"] == []
        assert (await client.get("/v1/files", params={"after": stored["id"]}, headers=BLUE)).status == 400
        assert (await client.get(url, headers=RED)).status == 200


async def test_pages_go_through_all_files_once(tiny_checkpoint: Path, tmp_path: Path) -> None:
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        made = [(await put(client, b"%d" % number))["id"] for number in range(5)]
        for order, expected in (("asc", made), ("desc", made[::-1])):
            seen: list[str] = []
            page: dict[str, Any] = {"has_more": True}
            while page["has_more"]:
                query = {"limit": "2", "order": order, "purpose": "batch"} | ({"after": seen[-1]} if seen else {})
                page = await (await client.get("/v1/files", params=query, headers=RED)).json()
                seen += [file["id"] for file in page["data"]]
                assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
            assert seen == expected
        none = await (await client.get("/v1/files?purpose=batch_output", headers=RED)).json()
        assert (none["data"], none["has_more"], none["first_id"]) == ([], False, None)


async def test_what_a_form_may_not_say(tiny_checkpoint: Path, tmp_path: Path) -> None:
    refusals: list[tuple[dict[str, Any], str, str]] = [
        ({"purpose": "fine-tune"}, "purpose", "unsupported_parameter"),
        ({"purpose": "batch_output"}, "purpose", "unsupported_parameter"),
        ({"purpose": None}, "purpose", "missing_required_parameter"),
        ({"name": "n" * 256}, "file", "invalid_value"),
        ({"anchor": "created_at", "seconds": "10"}, "expires_after[seconds]", "invalid_value"),
        ({"anchor": "created_at", "seconds": "soon"}, "expires_after[seconds]", "invalid_type"),
        ({"anchor": "now", "seconds": "3600"}, "expires_after[anchor]", "invalid_value"),
        ({"colour": "red"}, "expires_after[colour]", "unknown_parameter"),
    ]
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        for change, param, code in refusals:
            error = (await put(client, b"{}", **change))["error"]
            assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
        assert [name for name in below(tmp_path) if "sqlite3" not in name] == ["data/lock"]


async def test_what_a_query_may_not_say(tiny_checkpoint: Path, tmp_path: Path) -> None:
    refusals = [
        ("limit=0", "limit"), ("limit=10001", "limit"), ("limit=%C2%B2", "limit"), ("order=up", "order"),
        ("purpose=vision", "purpose"), ("after=file-none", "after"), ("limt=3", "limt"), ("limit=1&limit=2", "limit"),
    ]  # fmt: skip
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        for query, param in refusals:
            reply = await client.get(f"/v1/files?{query}", headers=RED)
            assert (reply.status, (await reply.json())["error"]["param"]) == (400, param)


async def test_bodies_that_are_no_form(tiny_checkpoint: Path, tmp_path: Path) -> None:
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        reply = await client.post("/v1/files", json={"purpose": "batch"}, headers=RED)
        assert (reply.status, (await reply.json())["error"]["code"]) == (415, "unsupported_media_type")
        for kind, body in (
            ("multipart/form-data", b"x"),
            ("multipart/form-data; boundary=b", b"x"),
            ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf'),
            ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=\r\n\r\nx\r\n--b--\r\n"),
            ("multipart/form-data; boundary=b", b"--b--\r\n"),
        ):
            reply = await client.post("/v1/files", data=body, headers={**RED, "Content-Type": kind})
            assert reply.status == 400, (kind, body)
        assert (await (await client.get("/v1/files", headers=RED)).json())["data"] == []


@pytest.mark.parametrize(("before", "status"), [(1000, 200), (2000, 400)])
async def test_few_lines_are_read_outside_of_the_file(
    tiny_checkpoint: Path, tmp_path: Path, before: int, status: int
) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    lines = part % (b"purpose", b"", b"batch") + part % (b"file", b'; filename="a"', b"{}\r\n" * 5000) + b"--b--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    async with serving(tiny_checkpoint, tmp_path / "data") as client:
        reply = await client.post("/v1/files", data=b"x\r\n" * before + lines, headers={**RED, **kind})
        assert reply.status == status
        if status == 400:
            assert "it has more than 1024 lines outside of its file" in (await reply.json())["error"]["message"]


async def test_a_teams_bytes_are_bounded_exactly(tiny_checkpoint: Path, tmp_path: Path) -> None:
    limits = {"team_bytes": 1000, "team_bytes_by_team": {"blue": 2000}, "max_file_bytes": 1500}
    async with serving(tiny_checkpoint, tmp_path / "data", **limits) as client:
        replies = await asyncio.gather(
            *(client.post("/v1/files", data=form(b"x" * 400), headers=RED) for _ in range(5))
        )
        assert sorted(reply.status for reply in replies) == [200, 200, 413, 413, 413]
        refused = next(reply for reply in replies if reply.status == 413)
        assert (await refused.json())["error"]["code"] == "storage_quota_exceeded"
        kept = (await next(reply for reply in replies if reply.status == 200).json())["id"]
        assert (await client.delete(f"/v1/files/{kept}", headers=RED)).status == 200
        assert (await client.post("/v1/files", data=form(b"x" * 600), headers=RED)).status == 200
        assert (await put(client, b"x" * 1500, BLUE))["bytes"] == 1500
        assert (await put(client, b"x" * 1501, BLUE))["error"]["code"] == "request_too_large"
        assert (await put(client, b"x" * 501, BLUE))["error"]["code"] == "storage_quota_exceeded"


async def test_one_server_holds_a_folder_and_others_say_so(tiny_checkpoint: Path, tmp_path: Path) -> None:
    async with serving(tiny_checkpoint, tmp_path / "data"):
        with pytest.raises(StartError, match="used by another server"):
            async with serving(tiny_checkpoint, tmp_path / "data"):
                pass


async def test_the_default_folder_may_be_unusable(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headgate").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for folder, status in (("auto", 503), (None, 404)):
        async with site(tiny_checkpoint, storage={"folder": folder}) as client:
            reply = await client.get("/v1/files")
            assert (reply.status, (await reply.json())["error"]["code"]) == (status, "storage_off")
            assert (await client.get("/v1/models")).status == 200
    assert default_folder({"HOME": "/home/somebody"}) == Path("/home/somebody/.local/share/headgate")


def test_a_user_without_a_home_has_no_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert open_storage(StorageSection(), lifecycle := Lifecycle(), {}) is None
    assert lifecycle.parts["storage"] == ("failed", "this user has no home; name a folder with storage.folder")


def test_a_catalog_that_cannot_be_written_is_told_as_one() -> None:
    with TemporaryDirectory() as name:
        (folder := Path(name)).chmod(0o777)
        Storage(folder, StorageSection(max_file_bytes=1, team_bytes=1)).close()
        for path in folder.iterdir():
            path.chmod(0o666 if path.name == "lock" else 0o555 if path.is_dir() else 0o444)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)  # root may write everything
            with pytest.raises(OSError, match=r"catalog\.sqlite3: attempt to write a readonly database"):
                Storage(folder, StorageSection(max_file_bytes=1, team_bytes=1))
        finally:
            os.seteuid(user)


async def test_files_whose_time_is_over_are_gone(tmp_path: Path) -> None:
    now = 1000.0
    storage = Storage(tmp_path, StorageSection(max_file_bytes=100, team_bytes=100), lambda: now)
    kept = []
    for expires_s in (None, 3600):
        async with storage.files.upload("red") as upload:
            await upload.write(b"x" * 50)
            kept.append(await upload.keep("a", "batch", expires_s))
    now += 3600
    assert await storage.files.page("red", None, 10, "asc", None) == (kept[:1], False)
    with pytest.raises(ApiError):
        await storage.files.get(kept[1].id, "red")
    await storage.files.sweep()
    assert [path.name for path in (tmp_path / "files").iterdir()] == [kept[0].id]
    storage.close()


async def test_what_a_crash_left_is_removed_at_the_start(tmp_path: Path) -> None:
    first = Storage(tmp_path, StorageSection(max_file_bytes=100, team_bytes=100))
    async with first.files.upload("red") as upload:
        await upload.write(b"x")
        stored = await upload.keep("a", "batch", None)
    await first.files.create("red", "output of a batch that was not saved any more", "batch_output")
    first.close()
    (tmp_path / "incoming" / "half").write_bytes(b"x")
    (tmp_path / "files" / "file-stray").write_bytes(b"x")
    second = Storage(tmp_path, StorageSection(max_file_bytes=100, team_bytes=100))
    await second.files.remove_strays()
    assert [name for name in below(tmp_path) if "/" in name] == [f"files/{stored.id}"]
    second.close()


@given(st.text(), st.binary(max_size=64))
def test_no_name_and_no_bytes_leave_the_folder(name: str, data: bytes) -> None:
    # The name reaches the catalog only; the id that reaches the disk is made here.
    async def keep() -> None:
        with tempfile.TemporaryDirectory() as outer:
            storage = Storage(Path(outer) / "data", StorageSection(max_file_bytes=1000, team_bytes=1000))
            async with storage.files.upload("red") as upload:
                await upload.write(data)
                stored = await upload.keep(name, "batch", None)
            assert storage.files.path(stored.id).read_bytes() == data
            assert (await storage.files.get(stored.id, "red")).filename == name
            storage.close()
            assert {name.split("/")[0] for name in below(Path(outer))} == {"data"}

    asyncio.run(keep())
