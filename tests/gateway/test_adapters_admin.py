"""Adapters that are added and removed while the server answers: over HTTP, by the official client and the commands."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from adapter_files import write_adapter
from click.testing import CliRunner, Result
from gateway_site import Client, Serve, forget_environment, site
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.cli import main
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.local.added_adapters import FILE, read_added
from headgate.gateway.settings import Settings

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Whose are you, and since when?"}],
    "max_tokens": 8,
    "temperature": 0,
    "extra_body": {"ignore_eos": True},
}
BODY = {**{name: value for name, value in ASK.items() if name != "extra_body"}, "ignore_eos": True}
Reply = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def folders(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("adapters")
    return {
        name: write_adapter(tiny_checkpoint, at / name, seed=seed)[0] for seed, name in enumerate(("one", "two"), 1)
    }


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    for name in ("RED", "BOSS"):
        monkeypatch.setenv(f"{name}_KEY", f"{name.lower()}-secret")
    async with AsyncExitStack() as stack:

        async def start(**sections: Any) -> Client:
            return await stack.enter_async_context(site(tiny_checkpoint, **sections))

        yield start


async def post(client: Client, path: str, body: dict[str, Any], **headers: str) -> Reply:
    response = await client.post(path, json=body, headers=headers)
    return response.status, await response.json()


async def add(client: Client, folder: Path, name: str = "sql", **more: Any) -> Reply:
    return await post(client, "/admin/adapters", {"model": "tiny", "id": name, "path": str(folder), **more})


async def remove(client: Client, name: str = "sql") -> Reply:
    return await post(client, "/admin/adapters/remove", {"id": name})


async def text(client: Client, model: str, **headers: str) -> str:
    status, body = await post(client, CHAT, {**BODY, "model": model}, **headers)
    assert (status, body["model"]) == (200, model)
    found: str = body["choices"][0]["message"]["content"]
    return found


async def alone(checkpoint: Path, folder: Path) -> str:
    """What the adapter says as a model of its own."""
    async with site(checkpoint, models=[{"id": "sql", "path": str(checkpoint), "adapter": str(folder)}]) as client:
        return await text(client, "sql")


async def test_one_comes_is_another_and_goes(serve: Serve, tiny_checkpoint: Path, folders: dict[str, Path]) -> None:
    wanted = {name: await alone(tiny_checkpoint, folder) for name, folder in folders.items()}
    client = await serve()
    official = openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError):
        await official.chat.completions.create(model="sql", **ASK)
    bare = await text(client, "tiny")
    price = {"usd_per_million_completion_tokens": 1_000_000}
    status, state = await add(client, folders["one"], price=price, lacks=["tools"])
    assert (status, state["state"], state["source"], state["lasts"]) == (200, "served", "added", False)
    listed = {model.id: model async for model in official.models.list()}
    assert [*listed][:3] == ["tiny", "tiny-2", "sql"]
    assert listed["sql"].to_dict()["parent"] == "tiny"
    again = {"Idempotency-Key": "7"}
    first = await official.chat.completions.create(model="sql", **ASK, extra_headers=again)
    assert first.choices[0].message.content == wanted["one"] == await text(client, "sql")
    status, body = await add(client, folders["two"])
    assert (status, body["error"]["code"], body["error"]["param"]) == (409, "adapter_exists", "id")
    assert '"replace": true' in body["error"]["message"]
    # Neither stored answers, nor those of a retry, nor a body that was read before, lead to the other adapter.
    assert (await add(client, folders["two"], replace=True))[0] == 200
    second = await official.chat.completions.create(model="sql", **ASK, extra_headers=again)
    assert second.choices[0].message.content == wanted["two"] == await text(client, "sql")
    assert first.system_fingerprint != second.system_fingerprint
    assert (await add(client, folders["one"], replace=True))[0] == 200
    assert await text(client, "sql") == wanted["one"]
    assert len({bare, *wanted.values()}) == 3

    status, state = await remove(client)
    assert (status, state["state"]) == (200, "removed")
    with pytest.raises(openai.NotFoundError, match=r"The model 'sql' does not exist. Available: .*tiny, tiny-2"):
        await official.chat.completions.create(model="sql", **ASK)
    assert "sql" not in {model.id async for model in official.models.list()}
    assert "model sql" not in (await (await client.get("/ready")).json())["parts"]
    assert 'breaker_state{model="sql"}' not in await (await client.get("/metrics")).text()
    assert await text(client, "tiny") == bare
    await official.close()


async def test_who_is_answered_when_it_goes_is_answered_to_the_end(serve: Serve, folders: dict[str, Path]) -> None:
    client = await serve()
    await add(client, folders["one"])
    long = {**BODY, "model": "sql", "max_tokens": 300, "stream": True}
    whole = await (await client.post(CHAT, json={**long, "seed": 1})).text()
    async with client.post(CHAT, json={**long, "seed": 2}) as response:
        began = await response.content.readuntil(b"\n\n")
        assert (await remove(client))[0] == 200
        assert (await post(client, CHAT, {**BODY, "model": "sql"}))[0] == 404
        assert (await add(client, folders["two"]))[0] == 200
        rest = await response.text()

    def said(stream: str) -> str:
        events = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
        return "".join(choice["delta"].get("content") or "" for e in events for choice in json.loads(e)["choices"])

    assert said(began.decode() + rest) == said(whole)
    assert rest.rstrip().endswith("[DONE]")


async def test_who_comes_too_late_is_told_to_ask_again(serve: Serve, folders: dict[str, Path]) -> None:
    client = await serve()
    await add(client, folders["one"])
    client.app[keys.LOADER]._engine.remove_adapter("sql")  # routes are told of it first, as a rule
    for thread in threading.enumerate():
        if thread.name.startswith("adapters of "):  # until its memory is given back, who was on the way is answered
            await asyncio.to_thread(thread.join)
    echo = {"model": "sql", "prompt": "Since when?", "echo": True, "logprobs": 1, "max_tokens": 4}
    for path, body in ((CHAT, {**BODY, "model": "sql"}), ("/v1/completions", echo)):
        response = await client.post(path, json=body)
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert "'sql' was changed or taken away" in (await response.json())["error"]["message"]


async def test_others_are_answered_while_one_is_loaded(
    serve: Serve, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    begun, may = asyncio.Event(), asyncio.Event()
    loop, engine = asyncio.get_running_loop(), client.app[keys.LOADER]._engine
    load = engine.add_adapter

    def slowly(*how: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(may.wait(), loop).result(60)
        return load(*how)

    monkeypatch.setattr(engine, "add_adapter", slowly)
    adding = asyncio.create_task(add(client, folders["one"]))
    await begun.wait()
    assert await text(client, "tiny")
    assert (await post(client, CHAT, {**BODY, "model": "sql"}))[0] == 404
    # The administrator who leaves does not stop it.
    adding.cancel()
    may.set()
    await asyncio.gather(*client.app[keys.LOADER].adapters._changes)
    assert await text(client, "sql")


async def test_what_is_wrong_is_named(serve: Serve, folders: dict[str, Path], tmp_path: Path) -> None:
    client = await serve()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in folders["one"].iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    config = json.loads((damaged / "adapter_config.json").read_text())
    (damaged / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "adapter_config.json").write_text("[" * 100_000)
    good = {"model": "tiny", "id": "sql", "path": str(folders["one"])}
    for changes, status, param, why in (
        ({"model": "gpt-4"}, 404, "model", "Available: tiny, tiny-2"),
        ({"path": str(tmp_path / "none")}, 400, "path", "no such folder, and no hub id"),
        ({"path": str(tmp_path)}, 400, "path", "adapter_config.json: the file is missing"),
        ({"path": str(damaged)}, 400, "path", "use_dora is True, which is not supported"),
        ({"path": ""}, 400, "path", ""),
        ({"path": "x" * 5000}, 400, "path", "no folder that can be read"),
        ({"path": "~nobody-of-this-name/sql"}, 400, "path", "no folder that can be read"),
        ({"path": str(deep)}, 400, "path", "adapter_config.json: cannot be read"),
        ({"id": "auto"}, 400, "id", "'auto' is a route"),
        ({"id": "a b"}, 400, "id", "pattern"),
        ({"id": "tiny-2"}, 409, "id", "is a model of the configuration"),
        ({"rank": 8}, 400, "rank", ""),
        ({"price": {"usd_per_million_prompt_tokens": -1}}, 400, "price.usd_per_million_prompt_tokens", ""),
    ):
        found, body = await post(client, "/admin/adapters", {**good, **changes})
        assert (found, body["error"]["param"]) == (status, param), body
        assert why in body["error"]["message"]
    assert (await remove(client))[0] == 404
    assert (await (await client.get("/admin/adapters")).json()) == {"adapters": []}
    assert (await client.get("/admin/adapters/remove")).status == 405
    assert (await post(client, "/admin/adapters", good))[0] == 200


async def test_keys_and_team_files(serve: Serve, folders: dict[str, Path], tmp_path: Path) -> None:
    """Only administrators change anything; what a team file names stays, for the file could not be read without it."""
    teams = tmp_path / "teams"
    write_team(teams, "red", keys=[key("RED")], models={"allow": ["tiny"]})
    write_team(teams, "boss", keys=[key("BOSS", role="admin")])
    client = await serve(teams=teams)
    red, boss = ({"Authorization": f"Bearer {name}-secret"} for name in ("red", "boss"))
    body = {"model": "tiny", "id": "sql", "path": str(folders["one"])}
    assert [(await post(client, "/admin/adapters", body, **who))[0] for who in ({}, red, boss)] == [401, 403, 200]
    ask = {**BODY, "model": "sql"}
    assert [(await post(client, CHAT, ask, **who))[0] for who in (red, boss)] == [403, 200]
    write_team(teams, "red", keys=[key("RED")], models={"allow": ["tiny", "sql"]})
    await client.app[keys.RELOADER].look()
    assert client.app[keys.RELOADER].problem is None
    assert (await post(client, CHAT, ask, **red))[0] == 200
    status, found = await post(client, "/admin/adapters/remove", {"id": "sql"}, **boss)
    assert (status, found["error"]["code"]) == (409, "bad_configuration")
    assert "there is no model 'sql'" in found["error"]["message"]
    assert "red.yaml:" in found["error"]["message"]
    write_team(teams, "red", keys=[key("RED")], models={"allow": ["tiny"]})
    assert (await post(client, "/admin/adapters/remove", {"id": "sql"}, **boss))[0] == 200
    assert (await post(client, "/admin/adapters/remove", {"id": "sql"}, **red))[0] == 403


async def test_pinned_prompts_come_and_go_with_them(serve: Serve, folders: dict[str, Path], tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), prompts={"pinned": ["You are patient. " * 3]})
    write_team(tmp_path, "boss", keys=[key("BOSS", role="admin")])
    client, boss = await serve(teams=tmp_path), {"Authorization": "Bearer boss-secret"}
    pinned, body = client.app[keys.PINNED], {"model": "tiny", "id": "sql"}

    async def held() -> int:
        await pinned.look()
        await text(client, "tiny", **boss, **{"Cache-Control": "no-cache"})  # a step follows what lets go
        return client.app[keys.LOADER].lanes["tiny"].stats().pinned_blocks

    bare = await held()
    for name, replace in (("one", False), ("two", True), ("one", True)):
        body |= {"path": str(folders[name]), "replace": replace}
        assert (await post(client, "/admin/adapters", body, **boss))[0] == 200
        assert await held() == 2 * bare > 0
    assert (await post(client, "/admin/adapters/remove", {"id": "sql"}, **boss))[0] == 200
    assert await held() == bare


async def test_the_next_start_has_them(
    serve: Serve, tiny_checkpoint: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    """One whose folder is gone by then is told of, and costs the others nothing."""
    data, lost = tmp_path / "data", tmp_path / "lost"
    lost.mkdir()
    for file in folders["two"].iterdir():
        (lost / file.name).write_bytes(file.read_bytes())
    storage = {"storage": {"folder": str(data)}}
    async with site(tiny_checkpoint, **storage) as client:
        assert (await add(client, folders["one"], tier="large"))[1]["lasts"]
        await add(client, lost, "lost")
        before = await text(client, "sql")
    for file in lost.iterdir():
        file.unlink()
    lost.rmdir()
    experiment = {"defaults": {"experiments": {"weights": {"lost": 1}}}}
    async with site(tiny_checkpoint, **storage, **experiment) as client:
        for path in (CHAT, "/admin/route"):  # its share is answered by the others
            status, body = await post(client, path, {**BODY, "model": "auto"})
            assert (status, body["model"] in ("tiny", "tiny-2", "sql")) == (200, True)
    teams = tmp_path / "teams"
    write_team(teams, "red", keys=[key("RED", role="admin")], models={"allow": ["sql", "lost"]})
    client = await serve(**storage, teams=teams)
    red = {"Authorization": "Bearer red-secret"}
    assert await text(client, "sql", **red) == before
    states = (await (await client.get("/admin/adapters", headers=red)).json())["adapters"]
    assert [(state["id"], state["state"], state["tier"]) for state in states] == [
        ("sql", "served", "large"), ("lost", "failed", None)
    ]  # fmt: skip
    ready = await client.get("/ready")
    assert (ready.status, (await ready.json())["parts"]["model lost"]["state"]) == (200, "failed")
    (data / FILE).write_text("[{}]")
    with pytest.raises(ConfigError, match=f"{FILE}: cannot be used"):
        read_added(Settings(**storage), {})


async def test_the_command_line_does_the_same(serve: Serve, folders: dict[str, Path]) -> None:
    client = await serve()

    async def command(*arguments: str) -> Result:
        url = str(client.make_url("/"))
        return await asyncio.to_thread(CliRunner().invoke, main, ["adapters", *arguments, "--url", url])

    added = await command("add", "tiny", "sql", str(folders["one"]), "--tier", "large", "--price", "1", "2")
    assert added.exit_code == 0, added.output
    assert added.output.split()[:4] == ["sql", "tiny", "served", "added"]
    assert "storage.folder" in added.output
    assert (await command("list")).output.split()[:3] == ["sql", "tiny", "served"]
    assert '"tier": "large"' in (await command("list", "--json")).output
    unknown = await command("remove", "huge")
    assert (unknown.exit_code, "404" in unknown.output) == (1, True)
    assert (await command("remove", "sql")).output.split()[2] == "removed"
    assert (await command("list")).output == ""
