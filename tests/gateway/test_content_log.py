"""What was said, in the log of teams that want it there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site
from team_files import key, write_team

from headgate.gateway.road.attachments import Picture, Sound
from headgate.gateway.road.request import ChatRequest, Message, Tool, ToolCall
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.telemetry.logs.content import Heard, asked_of, log_content, redacted, span_content
from headgate.gateway.telemetry.record import RequestRecord


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Write to ann.lee+x@mail.example.com now", "Write to [email] now"),
        ("Call +49 (0)30 1234-5678, room 12", "Call [number], room 12"),
        ("Card 4111 1111 1111 1111.", "Card [number]."),
        ("key sk-proj4f9a8b7c6d5e4f3a2b1c", "key [secret]"),
        ("see https://user:pw@host/path?q=1", "see [url]"),
        (r'{"card":"\n4111 1111 1111 1111","to":"ann\u0040example.com"}', r'{"card":"\n[number]","to":"[email]"}'),
        ("2 plus 2 is 4, and 1000 is a thousand", "2 plus 2 is 4, and 1000 is a thousand"),
        ("internationalization of understandings", "internationalization of understandings"),
    ],
)
def test_what_tells_who_people_are_is_left_out(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize("level", ["redacted", "full"])
def test_the_arguments_of_calls_are_text_like_any_other(level: str, caplog: pytest.LogCaptureFixture) -> None:
    arguments = '{"id": "ann@example.com", "type": "sk-abcdefgh12345678", "card": 4111111111111111, "bob@b.de": 12}'
    shown = '{"id": "[email]", "type": "[secret]", "card": [number], "[email]": 12}'
    call = ToolCall("call_1", "pay", arguments)
    request = ChatRequest("chat.completions", "auto", (Message("assistant", None, tool_calls=(call,)),))
    team = Principal("red", policy=TeamPolicy(logging={"content": level}))
    with caplog.at_level("INFO", logger="headgate.content"):
        record = RequestRecord("req_0123456789abcdef", "/v1/chat/completions", team="team-0123456789")
        log_content(record, team, {"asked": asked_of([request])})
    line = json.loads(caplog.records[0].message)
    function = {"name": "pay", "arguments": shown if level == "redacted" else arguments}
    assert line["asked"][0][0]["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]
    assert (line["id"], line["team"]) == ("req_0123456789abcdef", "team-0123456789"), "ours, and no words of anybody"


@pytest.mark.parametrize("redact", [False, True])
def test_of_pictures_it_is_said_that_they_were_there(redact: bool) -> None:
    parts = ("See", Picture("data:image/png;base64,QUJD"), Picture("https://example.com/secret"), Sound("QUJD", "wav"))
    messages = (Message("user", "See", parts=parts), Message("tool", "ok", tool_call_id="c", parts=("ok", parts[1])))
    request = ChatRequest("chat.completions", "up", messages)
    assert asked_of([request]) == [[
        {"role": "user", "content": "See", "attached": ["image", "image", "audio"]},
        {"role": "tool", "content": "ok", "tool_call_id": "c", "attached": ["image"]},
    ]]  # fmt: skip
    told = span_content([request], Heard(), redact=redact)
    said = [{"type": "text", "content": "See"}, {"type": "image"}, {"type": "image"}, {"type": "audio"}]
    assert [m["parts"] for m in told["gen_ai.input.messages"]] == [
        said, [{"type": "tool_call_response", "id": "c", "response": "ok"}, {"type": "image"}]
    ]  # fmt: skip


def test_a_span_tells_nothing_by_the_names_and_numbers_of_a_schema() -> None:
    schema = {"properties": {"ann@example.com": {"enum": [4111111111111111, 12, True]}, "id": {"const": "a@b.de"}}}
    request = ChatRequest("chat.completions", "auto", (Message("user", "Hi"),), tools=(Tool("pay", None, schema),))
    (tool,) = span_content([request], Heard(), redact=True)["gen_ai.tool.definitions"]
    properties = {"[email]": {"enum": ["[number]", 12, True]}, "id": {"const": "[email]"}}
    assert tool == {"name": "pay", "parameters": {"properties": properties}}


async def test_teams_have_in_the_log_what_they_want_there(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_environment(monkeypatch)
    for name, sections in (
        ("red", {"logging": {"content": "full"}}),
        ("blue", {"logging": {"content": "redacted"}}),
        ("grey", {}),
    ):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"secret-of-{name}")
        write_team(tmp_path, name, key(name), **sections)
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "I am ann@example.com"}], "max_tokens": 4}
    plain = {"model": "tiny", "prompt": ["one", "two"], "max_tokens": 4}
    said: dict[str, list[dict[str, Any]]] = {}
    async with site(tiny_checkpoint, teams=tmp_path) as client:
        for name in ("red", "blue", "grey"):
            caplog.clear()
            with caplog.at_level("INFO", logger="headgate.content"):
                for path, body in (
                    ("/v1/chat/completions", chat),
                    ("/v1/chat/completions", {**chat, "stream": True}),
                    ("/v1/completions", plain),
                ):
                    headers = {"Authorization": f"Bearer secret-of-{name}", "x-request-id": f"{name}-1"}
                    reply = await client.post(path, json=body, headers=headers)
                    whole = await reply.read()
                    if path.endswith("chat/completions") and "stream" not in body:
                        text = json.loads(whole)["choices"][0]["message"]["content"]
            said[name] = [json.loads(r.message) for r in caplog.records if r.name == "headgate.content"]
    assert said["grey"] == []
    first, streamed, two = said["red"]
    assert first == {"id": "red-1", "team": "red", "asked": [chat["messages"]], "answers": [text]}
    assert streamed["answers"] == first["answers"], "a stream is heard as the whole is"
    assert (two["asked"], len(two["answers"])) == (["one", "two"], 2)
    assert said["blue"][0]["asked"][0][0] == {"role": "user", "content": "I am [email]"}
