"""Teams at a whole server: which models their keys reach and by which names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from prometheus_client import CollectorRegistry
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import read_roster
from headgate.gateway.teams.registry import Roster, Teams
from headgate.gateway.teams.reload import Reloader
from headgate.gateway.teams.sections import TeamPolicy

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
RED, BLUE, BOSS = ({"Authorization": f"Bearer secret-of-{name}"} for name in ("red", "blue", "boss"))


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    for name in ("red", "blue", "boss"):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"secret-of-{name}")
    async with AsyncExitStack() as stack:

        async def start(**sections: Any) -> Client:
            return await stack.enter_async_context(site(tiny_checkpoint, **sections))

        yield start


async def ask(client: Client, headers: dict[str, str] = RED, **fields: Any) -> tuple[int, dict[str, Any]]:
    response = await client.post(CHAT, json={**HELLO, **fields}, headers=headers)
    return response.status, await response.json()


async def test_a_team_may_have_what_is_not_supported_left_out(serve: Serve, tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), models={"drop_params": True})
    write_team(tmp_path, "blue", key("blue"))
    client = await serve(teams=tmp_path)
    more: dict[str, Any] = {"store": True, "verbosity": "low", "no\r\nname": 1, "seed": 3}
    chat = {**HELLO, "model": "tiny"}
    for path, body in ((CHAT, chat), ("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})):
        plain = await client.post(path, json=body, headers=RED)
        lenient = await client.post(path, json={**body, **more}, headers=RED)
        assert (plain.status, lenient.status) == (200, 200)
        assert "x-headgate-dropped" not in plain.headers
        # Of completions only chats' parameters are unknown too.
        assert set(lenient.headers["x-headgate-dropped"].split(", ")) == {"store", "verbosity", "?"}
        assert (await lenient.json())["choices"] == (await plain.json())["choices"]
        refused = await client.post(path, json={**body, "verbosity": "low"}, headers=BLUE)
        assert (refused.status, (await refused.json())["error"]["param"]) == (400, "verbosity")
        wrong = await client.post(path, json={**body, "temperature": 9, "store": True}, headers=RED)
        assert (wrong.status, (await wrong.json())["error"]["param"]) == (400, "temperature")


async def test_keys_ask_the_models_they_may_by_the_names_of_their_team(serve: Serve, tmp_path: Path) -> None:
    models = {"deny": ["tiny-2"], "aliases": {"gpt-4o": "tiny", "any": "auto"}, "default": "gpt-4o"}
    write_team(tmp_path, "red", key("red"), models=models)
    write_team(tmp_path, "blue", key("blue", models=["tiny-2"]))
    client = await serve(teams=tmp_path, embeddings={"enabled": False})
    for fields in ({}, {"model": "gpt-4o"}, {"model": "any"}, {"model": "tiny"}, {"model": "small"}):
        status, body = await ask(client, **fields)
        assert (status, body["model"]) == (200, "tiny"), fields
    status, body = await ask(client, model="tiny-2")
    assert (status, body["error"]["type"], body["error"]["param"]) == (403, "permission_error", "model")
    assert body["error"]["message"].endswith("may not be used with this key. Available: all-minilm-l6-v2, tiny.")
    reply = await client.post(CHAT, json={**HELLO, "model": "tiny"}, headers=RED)
    assert reply.headers["openai-organization"] == "red"
    assert (await ask(client, BLUE, model="tiny-2"))[0] == 200
    assert (await ask(client, BLUE, model="tiny"))[0] == 403
    assert (await ask(client, BLUE, model="gpt-4o"))[0] == 404, "an alias is its team's only"
    status, body = await ask(client, BLUE)
    assert (status, body["error"]["param"], body["error"]["code"]) == (400, "model", "missing_required_parameter")


async def test_a_key_sees_the_models_it_may_ask(serve: Serve, tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), models={"deny": ["tiny-2"], "aliases": {"gpt-4o": "tiny"}})
    write_team(tmp_path, "blue", key("blue"), models={"aliases": {"gpt-5": "large"}})
    client = await serve(teams=tmp_path, embeddings={"enabled": False})

    async def seen(headers: dict[str, str]) -> list[str]:
        return [m["id"] for m in (await (await client.get("/v1/models", headers=headers)).json())["data"]]

    assert await seen(RED) == ["tiny", "gpt-4o"], "where there is no choice no name leaves one"
    assert await seen(BLUE) == ["tiny", "tiny-2", "auto", "small", "large", "gpt-5"]
    for name, headers, status in (("tiny-2", RED, 404), ("gpt-4o", RED, 200), ("gpt-4o", BLUE, 404)):
        response = await client.get(f"/v1/models/{name}", headers=headers)
        assert response.status == status
        assert status == 404 or (await response.json())["id"] == name


async def test_a_revoked_key_finishes_its_stream_and_is_refused_from_the_next_request_on(
    serve: Serve, tmp_path: Path
) -> None:
    write_team(tmp_path, "red", key("red"), key("boss"))
    client = await serve(teams=tmp_path)
    before = client.app[keys.TEAMS].roster.revision
    body = {**HELLO, "model": "tiny", "max_tokens": 200, "stream": True, "ignore_eos": True, "temperature": 1}
    async with client.post(CHAT, json=body, headers=RED) as stream:
        await stream.content.readline()
        write_team(tmp_path, "red", key("boss"))
        await client.app[keys.RELOADER].look()
        assert (await ask(client, RED, model="tiny"))[0] == 401
        assert (await ask(client, BOSS, model="tiny"))[0] == 200
        rest = (await stream.content.read()).decode()
    assert '"finish_reason":"length"' in rest
    assert rest.endswith("data: [DONE]\n\n")
    assert client.app[keys.TEAMS].roster.revision != before


def replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


async def test_a_file_that_cannot_be_used_changes_nothing_and_says_so(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_team(tmp_path, "red", key("red"))
    good = path.read_text()
    client = await serve(teams=tmp_path)
    app = client.app
    revision = app[keys.TEAMS].roster.revision
    # The server looks by itself too: it is to find each text once, and no file that is being written.
    await app[keys.RELOADER].look()
    replace(path, good[: len(good) // 2])
    await app[keys.RELOADER].look()
    assert (await ask(client, RED, model="tiny"))[0] == 200, "a half-written file revokes nothing"
    ready = await client.get("/ready")
    part = (await ready.json())["parts"]["teams"]
    assert (ready.status, part["state"]) == (200, "failed")
    assert part["detail"].startswith(f"configuration {revision} still holds: {path}")
    assert f"configuration {revision} still holds" in caplog.text
    page = await (await client.get("/metrics")).text()
    assert 'headgate_config_reloads_total{result="refused"} 1.0' in page
    assert "headgate_config_good 0.0" in page
    replace(path, good + "limits: {max_n: 1}\n")
    await app[keys.RELOADER].look()
    assert (await (await client.get("/ready")).json())["parts"]["teams"]["state"] == "ready"
    assert "headgate_config_good 1.0" in await (await client.get("/metrics")).text()
    assert (await ask(client, RED, model="tiny", n=2))[0] == 400
    await app[keys.RELOADER].look()
    page = await (await client.get("/metrics")).text()
    assert 'headgate_config_reloads_total{result="taken"} 1.0' in page, "what has not changed is not read again"


async def test_a_first_team_file_closes_an_open_server_and_none_left_opens_no_closed_one(
    serve: Serve, tmp_path: Path
) -> None:
    client = await serve(teams=tmp_path)
    assert (await ask(client, {}, model="tiny"))[0] == 200
    path = write_team(tmp_path, "red", key("red"))
    await client.app[keys.RELOADER].look()
    assert [(await ask(client, headers, model="tiny"))[0] for headers in ({}, RED)] == [401, 200]
    path.unlink()
    await client.app[keys.RELOADER].look()
    assert [(await ask(client, headers, model="tiny"))[0] for headers in ({}, RED)] == [401, 401]


async def test_a_link_that_leads_nowhere_is_missed_when_it_goes(serve: Serve, tmp_path: Path) -> None:
    # As a key of a ConfigMap goes: first what its link leads to, then the link.
    (folder := tmp_path / "teams").mkdir()
    kept = write_team(tmp_path / "kept", "red", key("red"))
    (link := folder / "red.yaml").symlink_to(kept)
    client = await serve(teams=folder)
    kept.unlink()
    await client.app[keys.RELOADER].look()
    assert (await ask(client, RED, model="tiny"))[0] == 200, "what cannot be read revokes nothing"
    link.unlink()
    await client.app[keys.RELOADER].look()
    assert (await ask(client, RED, model="tiny"))[0] == 401


async def test_a_file_that_may_be_read_again_is_read(tmp_path: Path) -> None:
    path = write_team(tmp_path, "red", key("red"))
    path.chmod(0o000)
    settings = Settings(teams={"folder": str(tmp_path)})

    def read(settings: Settings) -> Roster:
        if not path.stat().st_mode & 0o400:  # root reads all the same
            raise ConfigError([f"{path}: cannot be read"])
        return read_roster(settings, {"RED_KEY": "secret-of-red"})

    teams = Teams(Roster(TeamPolicy()))
    reloader = Reloader(settings, teams, read, Lifecycle(), CollectorRegistry())
    await reloader.look()
    assert not teams.roster.teams
    path.chmod(0o600)
    await reloader.look()
    assert set(teams.roster.teams) == {"red"}


async def test_what_is_asked_for_is_read_though_no_file_changed(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_team(tmp_path, "red", key("red"))
    client = await serve(teams=tmp_path)
    monkeypatch.setenv("RED_KEY", "secret-of-blue")
    client.app[keys.RELOADER].ask()
    await client.app[keys.RELOADER].look()
    assert [(await ask(client, headers, model="tiny"))[0] for headers in (RED, BLUE)] == [401, 200]


async def test_a_teams_own_words_come_before_every_conversation(serve: Serve, tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"))
    client = await serve(teams=tmp_path)
    system = {"messages": [{"role": "system", "content": "Hi."}, *HELLO["messages"]]}

    async def prompt_tokens(**fields: Any) -> int:
        return int((await ask(client, model="tiny", **fields))[1]["usage"]["prompt_tokens"])

    plain, with_system = await prompt_tokens(), await prompt_tokens(**system)
    write_team(tmp_path, "red", key("red"), prompts={"system_prepend": "Be brief."})
    await client.app[keys.RELOADER].look()
    assert await prompt_tokens() > plain, "nothing stored without the words is served with them"
    asked = {"messages": [{"role": "system", "content": "Be brief.\n\nHi."}, *HELLO["messages"]]}
    write_team(tmp_path, "red", key("red"))
    await client.app[keys.RELOADER].look()
    written = await prompt_tokens(**asked)
    write_team(tmp_path, "red", key("red"), prompts={"system_prepend": "Be brief."})
    await client.app[keys.RELOADER].look()
    assert await prompt_tokens(**system) == written > with_system

    async def counted(path: str, name: str, **fields: Any) -> int:
        body = {"model": "tiny", "messages": HELLO["messages"], **fields}
        return int((await (await client.post(path, json=body, headers=RED)).json())[name])

    billed = await prompt_tokens()
    assert await counted("/tokenize", "count") == billed, "what is counted is what an answer is billed for"
    assert await counted("/v1/messages/count_tokens", "input_tokens") == billed


async def test_the_first_conversation_under_a_pinned_prompt_finds_it_computed(serve: Serve, tmp_path: Path) -> None:
    system = "You are a patient assistant who answers in one short sentence. " * 3
    write_team(tmp_path, "red", key("red"), prompts={"system_prepend": "Be kind.", "pinned": [system]})
    write_team(tmp_path, "blue", key("blue"))
    client = await serve(teams=tmp_path)

    async def cached(question: str, headers: dict[str, str] = RED) -> int:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        _, body = await ask(client, headers, model="tiny", messages=messages)
        return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def held() -> dict[str, float]:
        lines = (await (await client.get("/metrics")).text()).splitlines()
        told = [line.split() for line in lines if line.startswith("headgate_pinned_tokens{")]
        return {name: float(value) for name, value in told}

    await client.app[keys.PINNED].look()
    tokens = await held()
    assert {*tokens} == {f'headgate_pinned_tokens{{model="{m}",team="red"}}' for m in ("tiny", "tiny-2")}
    first = await cached("What is the time?")
    assert min(tokens.values()) - 16 < first <= min(tokens.values()), "all but a block that is not full"
    assert await cached("What is the time?", BLUE) == 0, "another team has nothing of it"
    write_team(tmp_path, "red", key("red"))
    await client.app[keys.RELOADER].look()
    await client.app[keys.PINNED].look()
    assert await held() == {}


async def test_replies_and_log_name_the_configuration(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_team(tmp_path, "red", key("red"))
    client = await serve(teams=tmp_path)
    with caplog.at_level("INFO", logger="headgate.access"):
        response = await client.post(CHAT, json={**HELLO, "model": "tiny"}, headers=RED)
    revision = response.headers["x-headgate-config"]
    assert len(revision) == 8
    (line,) = [r.message for r in caplog.records if r.name == "headgate.access"]
    assert f'"config":"{revision}"' in line
    assert (await client.get("/health")).headers["x-headgate-config"] == revision
