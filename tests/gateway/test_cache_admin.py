"""Looking at the answer cache and forgetting parts of it, over HTTP and from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from click.testing import CliRunner, Result
from gateway_site import forget_environment, site
from team_files import write_team

from headgate.gateway import middleware
from headgate.gateway.cli import main
from headgate.gateway.parts import StartError

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
INVALIDATE = "/admin/cache/invalidate"
RED, BLUE, BOSS = ({"Authorization": f"Bearer {name}-secret"} for name in ("red", "blue", "boss"))


@pytest.fixture
def teams(tmp_path: Path) -> Path:
    """A folder of three teams, of which one administers."""
    folder = tmp_path / "teams"
    write_team(folder, "red", {"id": "one", "secret": "env:RED_KEY"})
    write_team(folder, "blue", {"id": "two", "secret": "env:BLUE_KEY"})
    write_team(folder, "ops", {"id": "boss", "secret": "env:BOSS_KEY", "role": "admin"})
    return folder


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    for name in ("red", "blue", "boss"):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"{name}-secret")
    async with AsyncExitStack() as stack:

        async def start(**sections: Any) -> Client:
            return await stack.enter_async_context(site(tiny_checkpoint, **sections))

        yield start


async def ask(client: Client, text: str = "hello", **headers: str) -> tuple[str, str | None]:
    """What the cache said, and the key."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 4}
    response = await client.post(CHAT, json=body, headers=headers)
    assert response.status == 200
    return response.headers["x-headgate-cache"], response.headers.get("x-headgate-cache-key")


async def forget(client: Client, wanted: dict[str, Any], **headers: str) -> int:
    response = await client.post(INVALIDATE, json=wanted, headers=headers)
    body = await response.json()
    assert response.status == 200, body
    return int(body["invalidated"])


async def test_an_answer_is_forgotten_by_its_key(serve: Serve) -> None:
    client = await serve()
    _, key = await ask(client)
    assert await ask(client) == ("exact", key)
    assert await forget(client, {"key": key}) == 1
    assert await forget(client, {"key": key}) == 0
    assert await ask(client) == ("miss", key)


async def test_answers_are_forgotten_by_tag_team_and_all_together(serve: Serve, teams: Path) -> None:
    client = await serve(teams=teams)
    tagged = {"x-headgate-cache-tags": "docs,v3"}

    async def fill() -> None:
        for who in (RED, BLUE):
            await ask(client, "tagged", **who, **tagged)
            await ask(client, "plain", **who)

    async def kept() -> list[str]:
        only = {"Cache-Control": "only-if-cached"}
        found = []
        for name, who in (("red", RED), ("blue", BLUE)):
            for text in ("tagged", "plain"):
                body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 4}
                response = await client.post(CHAT, json=body, headers={**who, **only})
                if response.status == 200:
                    found.append(f"{name} {text}")
        return found

    await fill()
    assert await forget(client, {"tag": "docs", "team": "red"}, **BOSS) == 1
    assert await kept() == ["red plain", "blue tagged", "blue plain"]
    await fill()
    assert await forget(client, {"tag": "v3"}, **BOSS) == 2
    assert await kept() == ["red plain", "blue plain"]
    await fill()
    assert await forget(client, {"team": "blue"}, **BOSS) == 2
    assert await kept() == ["red tagged", "red plain"]
    assert await forget(client, {"all": True}, **BOSS) == 2
    assert await kept() == []


async def test_what_one_key_made_is_forgotten_and_no_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, teams: Path
) -> None:
    monkeypatch.setenv("RED2_KEY", "red2-secret")
    write_team(teams, "red", {"id": "one", "secret": "env:RED_KEY"}, {"id": "one-b", "secret": "env:RED2_KEY"})
    client = await serve(teams=teams)
    red2 = {"Authorization": "Bearer red2-secret"}
    await ask(client, "mine", **RED)
    await ask(client, "hers", **red2)
    assert (await ask(client, "hers", **RED))[0] == "exact", "a team shares what its keys make"
    assert await forget(client, {"author": "one", "team": "blue"}, **BOSS) == 0
    assert await forget(client, {"author": "one"}, **BOSS) == 1
    assert ((await ask(client, "mine", **RED))[0], (await ask(client, "hers", **RED))[0]) == ("miss", "exact")
    assert await forget(client, {"author": "one-b", "team": "red"}, **BOSS) == 1


async def test_an_epoch_is_begun_and_gone_back_to_and_outlives_the_server(serve: Serve, tmp_path: Path) -> None:
    cache = {"semantic": {"enabled": False}, "journal": str(tmp_path / "journal"), "epoch": "v1"}

    async def epoch(client: Client) -> str:
        return str((await (await client.get("/admin/cache")).json())["epoch"])

    client = await serve(cache=cache)
    await ask(client)
    assert await forget(client, {"epoch": "v1"}) == 1, "it is, and one is stored"
    assert await forget(client, {"epoch": "v2"}) == 1
    assert (await epoch(client), (await ask(client))[0]) == ("v2", "miss")
    assert await forget(client, {"epoch": "v1"}) == 2
    assert (await ask(client))[0] == "exact"
    await forget(client, {"epoch": "v3"})
    with pytest.raises(StartError, match="used by another process"):
        await serve(cache=cache)
    await client.close()
    later = await serve(cache=cache)
    assert await epoch(later) == "v3"
    await later.close()
    assert await epoch(await serve(cache={**cache, "epoch": "v4"})) == "v4", "a changed configuration has the last word"


async def test_without_answers_by_meaning_there_is_nothing_to_audit(serve: Serve) -> None:
    client = await serve()
    for response in (
        await client.get("/admin/cache/audits"),
        await client.get("/admin/cache/labels"),
        await client.post("/admin/cache/lift", json={"all": True}),
    ):
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "no_audits"
    for body, told in (({}, "got none"), ({"key": "a", "all": True}, "key and all"), ({"keys": "a"}, "keys")):
        response = await client.post("/admin/cache/lift", json=body)
        assert response.status == 400
        assert told in (await response.json())["error"]["message"]


async def test_a_key_makes_no_more_answers_than_it_may(serve: Serve, teams: Path) -> None:
    cache = {"semantic": {"enabled": False}, "inserts_per_hour": 2}
    client = await serve(teams=teams, cache=cache)
    for text in ("a", "b", "c"):
        await ask(client, text, **RED)
    await ask(client, "d", **BLUE)
    assert [(await ask(client, text, **RED))[0] for text in ("a", "b", "c")] == ["exact", "exact", "miss"]
    assert (await ask(client, "d", **BLUE))[0] == "exact"
    metrics = await (await client.get("/metrics")).text()
    assert 'headgate_cache_stores_total{result="share"} 2.0' in metrics


async def test_administration_takes_a_key_that_may(serve: Serve, teams: Path) -> None:
    client = await serve(teams=teams)
    for headers, status in (({}, 401), (RED, 403), (BOSS, 200)):
        for response in (
            await client.post(INVALIDATE, json={"all": True}, headers=headers),
            await client.get("/admin/cache", headers=headers),
        ):
            assert response.status == status
            if status != 200:
                assert set((await response.json())["error"]) == {"message", "type", "param", "code"}


async def test_an_open_server_is_administered_from_its_own_machine_only(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    assert (await client.get("/admin/cache")).status == 200
    monkeypatch.setattr(middleware.web.BaseRequest, "remote", "192.0.2.7")
    response = await client.post(INVALIDATE, json={"all": True})
    assert response.status == 403
    assert "admin" in (await response.json())["error"]["message"]
    assert (await ask(client))[0] == "miss", "and everything else is open"


@pytest.mark.parametrize("type_", ["text/plain", ""])
async def test_a_page_in_a_browser_cannot_post_without_asking(serve: Serve, type_: str) -> None:
    client = await serve()
    response = await client.post(INVALIDATE, data=b'{"all": true}', headers={"Content-Type": type_})
    assert response.status == 415


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "got none"),
        ({"key": "a", "all": True}, "key and all"),
        ({"key": "a", "team": "b"}, "key and team"),
        ({"everything": True}, "everything"),
        ({"key": 7}, "a string"),
        ({"all": False}, "got none"),
        ({"author": "a", "tag": "b"}, "tag and author"),
        ({"epoch": "a", "all": True}, "epoch and all"),
        ({"epoch": "x" * 65}, "epoch"),
        ({"tag": "a", "team": ""}, "'team': it is empty"),
        ({"author": "a", "team": ""}, "'team': it is empty"),
    ],
)
async def test_what_to_forget_must_be_said_exactly(serve: Serve, body: dict[str, Any], told: str) -> None:
    client = await serve()
    response = await client.post(INVALIDATE, json=body)
    assert response.status == 400
    assert told in (await response.json())["error"]["message"]


async def test_the_report_tells_what_is_kept_and_saved(serve: Serve) -> None:
    client = await serve(engine={"device": "cpu", "kv_bytes": 2**23, "threads": 1, "usd_per_device_hour": 3600.0})
    for _ in range(3):
        await ask(client)
    report = await (await client.get("/admin/cache")).json()
    assert (report["store"], report["entries"], report["evictions"]) == ("memory", 1, 0)
    assert 0 < report["bytes"] < report["max_bytes"]
    assert report["lookups"] == {"miss": 1, "exact": 2}
    assert report["saved"]["tokens_completion"] == 8
    assert report["saved"]["tokens_prompt"] > 0
    assert report["saved"]["usd"] == pytest.approx(report["saved"]["device_seconds"])
    assert report["saved"]["usd"] > 0
    assert report["faults"] == {"store": 0, "embedder": 0, "index": 0}
    metrics = await (await client.get("/metrics")).text()
    for line in (
        'headgate_cache_lookups_total{reason="stored",verdict="exact"} 2.0',
        'headgate_cache_hit_age_seconds_count{kind="exact"} 2.0',
        'headgate_cache_saved_tokens_total{kind="completion"} 8.0',
        'headgate_cache_stores_total{result="kept"} 1.0',
        "headgate_cache_store_entries 1.0",
        'headgate_cache_faults_total{part="store"} 0.0',
    ):
        assert line in metrics


async def command(client: Client, *arguments: str) -> Result:
    url = str(client.make_url("/"))
    return await asyncio.to_thread(CliRunner().invoke, main, ["cache", *arguments, "--url", url])


async def test_the_command_line_does_the_same(serve: Serve, teams: Path) -> None:
    client = await serve(teams=teams)
    _, key = await ask(client, **RED)
    await ask(client, **BLUE, **{"x-headgate-cache-tags": "t"})
    shown = await command(client, "stats", "--api-key", "boss-secret", "--json")
    assert json.loads(shown.output)["entries"] == 2
    assert "entries      2" in (await command(client, "stats", "--api-key", "boss-secret")).output
    assert key is not None
    for arguments, said in (
        (["--key", key], "1 answer forgotten."),
        (["--tag", "t", "--team", "blue"], "1 answer forgotten."),
        (["--author", "two", "--team", "blue"], "0 answers forgotten."),
        (["--epoch", "v2"], "The epoch is 'v2'; 0 answers stored, of any epoch."),
        (["--all"], "0 answers forgotten."),
    ):
        result = await command(client, "invalidate", "--api-key", "boss-secret", *arguments)
        assert (result.exit_code, result.output.strip()) == (0, said)
    refused = await command(client, "invalidate", "--all", "--api-key", "red-secret")
    assert refused.exit_code == 1
    assert "403" in refused.output
    assert "admin" in refused.output
    unaudited = await command(client, "audits", "--api-key", "boss-secret")
    assert (unaudited.exit_code, "404" in unaudited.output) == (1, True)
    assert (await command(client, "lift")).exit_code == 2
    assert (await command(client, "invalidate")).exit_code == 2
    assert (await command(client, "invalidate", "--all", "--key", "k")).exit_code == 2


def test_the_command_line_says_where_no_server_is() -> None:
    for url in ("http://127.0.0.1:9", "nonsense"):
        result = CliRunner().invoke(main, ["cache", "stats", "--url", url])
        assert result.exit_code == 1
        assert url in result.output
