"""Pictures, sound and files on the wire: what the three protocols say of them, and what is refused by its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.road.attachments import Document, Picture, Piece, Sound
from headgate.gateway.road.request import CacheControl, ChatRequest, Message
from headgate.gateway.upstream.messages import messages_of
from headgate.gateway.wire.anthropic.request import parse_messages
from headgate.gateway.wire.attachments import document, picture
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.responses.request import read_responses, to_respond

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
URL = f"data:image/png;base64,{PNG}"
PDF = base64.b64encode(b"%PDF-1.4 ...").decode()
AT = "messages[0].content[0]"
SEEN = {"type": "image_url", "image_url": {"url": URL}}


def chat(*parts: Any, role: str = "user", **message: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": role, "content": list(parts), **message}]}
    return parse_chat(json.dumps(body).encode(), CacheControl())


def anthropic(*blocks: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": list(blocks)}]}
    return parse_messages(json.dumps(body).encode(), CacheControl())


def responses(*items: Any) -> ChatRequest:
    wire = read_responses(json.dumps({"model": "m", "input": list(items)}).encode())
    return to_respond(wire, CacheControl(), None).request


def asks(*parts: Any) -> ChatRequest:
    return responses({"role": "user", "content": list(parts)})


def test_chats_say_where_each_part_stands() -> None:
    (message,) = chat(
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png?b=c"}},
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}},
        {"type": "text", "text": "and tell."},
    ).messages
    assert message.content == "Look\nand tell."
    assert message.parts == (
        "Look",
        Picture(URL, "low", "messages[0].content[1]"),
        Picture("https://example.com/a.png?b=c", None, "messages[0].content[2]"),
        Sound(PNG, "wav", "messages[0].content[3]"),
        Document(f"data:application/pdf;base64,{PDF}", "a.pdf", "messages[0].content[4]"),
        "and tell.",
    )


def test_text_alone_stays_what_it_was() -> None:
    assert chat({"type": "text", "text": "a"}, {"type": "text", "text": "b"}).messages == (Message("user", "a\nb"),)
    assert anthropic({"type": "text", "text": "a"}, {"type": "text", "text": "b"}).messages == (
        Message("user", "a\nb"),
    )
    assert asks({"type": "input_text", "text": "a"}).messages == (Message("user", "a"),)


def test_a_picture_alone_has_no_text() -> None:
    assert chat(SEEN).messages == (Message("user", "", parts=(Picture(URL, None, AT),)),)


def test_anthropics_blocks_become_the_same() -> None:
    messages = anthropic(
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
            {"type": "text", "text": "half a page"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ]},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "gone"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}, "cache_control": None},
        {"type": "document", "title": "Rent", "context": "of 2024", "citations": {"enabled": False},
         "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        {"type": "text", "text": "What now?"},
    ).messages  # fmt: skip
    assert messages == (
        Message("tool", "Error: half a page", tool_call_id="t1",
                parts=("Error: half a page", Picture(URL, None, "messages[0].content[0].content[1]"))),
        Message("tool", "Error: gone", tool_call_id="t2"),
        Message("user", "of 2024\nWhat now?", parts=(
            Picture("https://example.com/a.png", None, "messages[0].content[2]"),
            "of 2024",
            Document(f"data:application/pdf;base64,{PDF}", "Rent", "messages[0].content[3]"),
            "What now?",
        )),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "The rent is 5."}, "Rent\nThe rent is 5."),
        ({"type": "content", "content": "The rent is 5."}, "Rent\nThe rent is 5."),
        ({"type": "content", "content": [{"type": "text", "text": "5"}]}, "Rent\n5"),
    ],
)
def test_a_document_of_text_is_text_to_every_model(source: dict[str, Any], text: str) -> None:
    assert anthropic({"type": "document", "title": "Rent", "source": source}).messages == (Message("user", text),)


def test_responses_say_the_same_also_in_results_of_functions() -> None:
    image = {"type": "input_image", "image_url": URL, "detail": "high"}
    file = {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}
    messages = responses(
        {"role": "user", "content": [{"type": "input_text", "text": "See"}, image, file,
                                     {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [image]},
    ).messages  # fmt: skip
    assert messages[0].parts == (
        "See",
        Picture(URL, "high", "input[0].content[1]"),
        Document(f"data:application/pdf;base64,{PDF}", "a.pdf", "input[0].content[2]"),
        Sound(PNG, "mp3", "input[0].content[3]"),
    )
    assert messages[2] == Message(
        "tool", "", tool_call_id="c1", parts=(Picture(URL, "high", "input[2].output[0]"),)
    )  # fmt: skip


def at(part: dict[str, Any], place: str, code: str) -> Any:
    return pytest.param(part, place, code, id=place.rpartition(".")[2] + " " + json.dumps(part)[:60])


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        at({"type": "image_url"}, f"{AT}.image_url", "missing_required_parameter"),
        at({"type": "image_url", "image_url": URL}, f"{AT}.image_url", "invalid_type"),
        at({"type": "image_url", "image_url": {"url": "x"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "http://"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "http://a b"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "http://[::1"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": f"data:audio/wav;base64,{PNG}"}},
           f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, f"{AT}.image_url.url", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
           f"{AT}.image_url.url", "invalid_base64"),
        at({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}},
           f"{AT}.image_url.url", "invalid_base64"),
        at({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA A"}},
           f"{AT}.image_url.url", "invalid_base64"),
        at({"type": "image_url", "image_url": {"url": URL, "detail": "some"}},
           f"{AT}.image_url.detail", "invalid_value"),
        at({"type": "image_url", "image_url": {"url": URL, "size": 1}}, f"{AT}.image_url.size", "unknown_parameter"),
        at({"type": "input_audio", "input_audio": {"data": "?", "format": "wav"}},
           f"{AT}.input_audio.data", "invalid_base64"),
        at({"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}},
           f"{AT}.input_audio.data", "invalid_value"),
        at({"type": "input_audio", "input_audio": {"data": PNG, "format": "exe"}},
           f"{AT}.input_audio.format", "invalid_value"),
        at({"type": "file", "file": {"filename": "a.pdf"}}, f"{AT}.file.file_data", "missing_required_parameter"),
        at({"type": "file", "file": {"file_id": "file-1"}}, f"{AT}.file.file_id", "unsupported_parameter"),
        at({"type": "file", "file": {"file_data": "data:application/pdf,x"}}, f"{AT}.file.file_data", "invalid_value"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_chats_part_is_named(part: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(part)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
    assert PNG not in caught.value.message


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_only_users_and_functions_show_something(role: str) -> None:
    with pytest.raises(
        ApiError, match=r"parts of type 'image_url' are not supported here. Supported: 'text'\."
    ) as caught:
        chat(SEEN, role=role)
    assert caught.value.param == f"{AT}.type"
    assert chat(SEEN, role="tool", tool_call_id="c").attachments
    assistant = {"role": "assistant", "content": [{"type": "input_image", "image_url": URL}]}
    with pytest.raises(ApiError, match="parts of type 'input_image'"):
        responses(assistant)


@pytest.mark.parametrize(
    ("block", "param", "code"),
    [
        at({"type": "image"}, f"{AT}.source", "missing_required_parameter"),
        at({"type": "image", "source": {}}, f"{AT}.source", "invalid_type"),
        at({"type": "image", "source": {"type": "file", "file_id": "file_1"}},
           f"{AT}.source.file_id", "unsupported_parameter"),
        at({"type": "image", "source": {"type": "base64", "media_type": "text/html", "data": PNG}},
           f"{AT}.source.media_type", "invalid_value"),
        at({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}},
           f"{AT}.source.data", "invalid_base64"),
        at({"type": "image", "source": {"type": "url", "url": "ftp://x"}}, f"{AT}.source.url", "invalid_value"),
        at({"type": "image", "source": {"type": "sound"}}, f"{AT}.source.type", "unsupported_parameter"),
        at({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
           f"{AT}.source.type", "unsupported_parameter"),
        at({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": PDF}},
           f"{AT}.source.media_type", "invalid_value"),
        at({"type": "document", "title": 5, "source": {"type": "text", "data": "x"}}, AT, "invalid_type"),
        at({"type": "document", "citations": {"enabled": True}, "source": {"type": "text", "data": "x"}},
           f"{AT}.citations", "unsupported_parameter"),
        at({"type": "document", "source": {"type": "content", "content": [{"type": "document"}]}},
           f"{AT}.source.content[0].type", "unsupported_parameter"),
        at({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_use"}]},
           f"{AT}.content[0].type", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_anthropics_block_is_named(block: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        anthropic(block)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        at({"type": "input_image"}, "input[0].content[0].image_url", "missing_required_parameter"),
        at({"type": "input_image", "image_url": "x"}, "input[0].content[0].image_url", "invalid_value"),
        at({"type": "input_image", "image_url": URL, "detail": "some"}, "input[0].content[0].detail", "invalid_value"),
        at({"type": "input_image", "file_id": "file-1"}, "input[0].content[0].file_id", "unsupported_parameter"),
        at({"type": "input_file", "file_url": "https://x/a"}, "input[0].content[0].file_url", "unsupported_parameter"),
        at({"type": "input_file", "file_data": PDF, "detail": "low"},
           "input[0].content[0].detail", "unsupported_parameter"),
        at({"type": "input_audio"}, "input[0].content[0].input_audio", "missing_required_parameter"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_responses_part_is_named(part: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        asks(part)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@given(st.binary(min_size=1), st.sampled_from(["image/png", "image/svg+xml", "IMAGE/JPEG", "image/x-a;name=b.c"]))
def test_whatever_is_base64_is_taken_as_it_is(data: bytes, kind: str) -> None:
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    assert picture(url, None, "p.url", "p").url == url
    assert document(url, None, "p.file_data", "p").data == url


@given(st.text() | st.text().map("data:image/png;base64,".__add__) | st.text().map("https://".__add__))
def test_any_text_is_a_picture_or_refused_by_its_place(url: str) -> None:
    refusal = None
    try:
        assert picture(url, None, "p.url", "p").url == url
    except ApiError as error:
        refusal = error
    assert refusal is None or (refusal.status, refusal.param, len(refusal.message) < 200) == (400, "p.url", True)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_any_value_in_any_field_of_a_part_is_taken_or_refused_by_name(value: Any) -> None:
    for make, kinds in (
        (chat, {"image_url": "image_url", "input_audio": "input_audio", "file": "file", "text": "text"}),
        (anthropic, {"image": "source", "document": "source", "tool_result": "content"}),
        (asks, {"input_image": "image_url", "input_file": "file_data", "input_audio": "input_audio"}),
    ):
        for kind, field in kinds.items():
            refusal = None
            try:
                make({"type": kind, field: value})
            except ApiError as error:
                refusal = error
            assert refusal is None or str(refusal.param).startswith(("messages", "input"))


PICTURE, SOUND = Picture(URL, "low", "a"), Sound(PNG, "wav", "b")


def user(*pieces: Piece) -> Message:
    return Message("user", "\n".join(p for p in pieces if isinstance(p, str)), parts=pieces)


def test_an_upstream_is_told_in_openais_words() -> None:
    (told,) = messages_of([user("Look", PICTURE, SOUND, Document(PDF), Document(PDF, "a.pdf"), Picture("https://x"))])
    assert told == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look"},
            {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
            {"type": "file", "file": {"file_data": PDF}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
            {"type": "image_url", "image_url": {"url": "https://x"}},
        ],
    }


def test_what_functions_give_beside_text_follows_their_results() -> None:
    shown = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    one, two = ({"type": "text", "text": f"Given by the call {name}:"} for name in ("c1", "c2"))
    results = [
        Message("tool", "ok", tool_call_id="c1", parts=("ok", PICTURE)),
        Message("tool", "", tool_call_id="c2", parts=(PICTURE,)),
        Message("tool", "5", tool_call_id="c3"),
    ]
    below = "What it gave is shown in the next message of the user."
    tools = [
        {"role": "tool", "content": "ok", "tool_call_id": "c1"},
        {"role": "tool", "content": below, "tool_call_id": "c2"},
        {"role": "tool", "content": "5", "tool_call_id": "c3"},
    ]
    own = [one, shown, two, shown]
    assert messages_of(results) == [*tools, {"role": "user", "content": own}]
    assistant = Message("assistant", "I see.")
    assert messages_of([*results, assistant]) == [
        *tools, {"role": "user", "content": own}, {"role": "assistant", "content": "I see."}
    ]  # fmt: skip
    said = [*own, {"type": "text", "text": "And?"}]
    for message in (Message("user", "And?"), user("And?")):
        assert messages_of([*results, message]) == [*tools, {"role": "user", "content": said}]
