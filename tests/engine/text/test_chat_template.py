"""Chat templates render as transformers renders them, inside a sandbox, with errors for the caller."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headgate.engine.models.identity import checkpoint_identity
from headgate.engine.text.chat_template import ChatTemplate, NoChatTemplate, TemplateError
from headgate.engine.text.folder import TokenizerError, text_revision
from headgate.engine.text.tokenizer import Tokenizer

CHATML = """
{%- if tools %}
    <|start|>system
    {%- for tool in tools %}
{{ "\\n" ~ (tool | tojson) }}
    {%- endfor %}
<|end|>
{% endif %}
{%- for message in messages %}
    {%- if not loop.first and message.role == 'system' %}
        {{- raise_exception('a system message must come first') }}
    {%- endif %}
{{ '<|start|>' + message['role'] + '\\n' + message['content'] + '<|end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>\\n' }}{% endif %}
{% endif %}
"""

LLAMA3 = """
{{- bos_token }}
{%- set date = strftime_now("%Y") if strftime_now is defined else "2024" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = "" %}
    {%- set rest = messages %}
{%- endif %}
{{- "<|start|>system<|stop|>\\n\\nYear: " ~ date ~ "\\n" ~ system ~ "<|end|>" }}
{%- set counted = namespace(turns=0) %}
{%- for message in rest %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {%- set counted.turns = counted.turns + 1 %}
    {{- "<|start|>" + message.role + "<|stop|>\\n\\n" }}
    {%- generation %}
        {{- message.content | trim }}
    {%- endgeneration %}
    {{- "<|end|>" }}
{%- endfor %}
{{- "turns: %d" | format(counted.turns) }}
{%- if tools is not none %}{{ tools | tojson(indent=2) }}{% endif %}
{%- if add_generation_prompt %}
    {{- "<|start|>assistant<|stop|>\\n\\n" }}
{%- endif %}
"""

MISTRAL = """
{{- bos_token }}
{%- set ns = namespace(system="") %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = message['content'] %}
    {%- elif message['role'] == 'user' %}
        {{- '[INST] ' + (ns.system + '\\n\\n' if ns.system and loop.last else '') + message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token }}
    {%- else %}
        {{- raise_exception('Only user, assistant and system roles are supported, not ' + message['role']) }}
    {%- endif %}
{%- endfor %}
"""

CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello <b>&\"you\"</b> 'é' 🎉"}],
    [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "{{ messages }} {% raw %}"},
    ],
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look_up", "description": "<find> é", "parameters": {"type": "object", "properties": {}}},
    }
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders written by transformers itself, one per template."""

    def save(template: str) -> Path:
        path = tmp_path_factory.mktemp("model")
        backend = tokenizers.Tokenizer(tokenizers.models.BPE())
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        backend.train_from_iterator(
            [], tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False, vocab_size=256)
        )
        fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
        fast.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|end|>", "<|stop|>"]})
        fast.chat_template = template
        fast.save_pretrained(path)
        return path

    return save


@pytest.mark.parametrize("template", [CHATML, LLAMA3, MISTRAL], ids=["chatml", "llama3", "mistral"])
def test_parity_with_transformers(template: str, saved: Callable[[str], Path]) -> None:
    path = saved(template)
    oracle = AutoTokenizer.from_pretrained(path)
    ours, tokenizer = ChatTemplate.load(path), Tokenizer.load(path)
    assert tokenizer.bos_id == oracle.bos_token_id
    assert tokenizer.eos_ids == (oracle.eos_token_id,)
    for messages in CHATS:
        for tools in (None, TOOLS):
            for prompt in (True, False):
                expected = oracle.apply_chat_template(
                    copy.deepcopy(messages), tools=tools, add_generation_prompt=prompt, tokenize=False
                )
                rendered = ours.render(messages, tools=tools, add_generation_prompt=prompt)
                assert rendered == expected
        ids = oracle.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert tokenizer.encode(ours.render(messages), add_special_tokens=False) == ids
        assert tokenizer.decode(ids) == oracle.decode(ids, skip_special_tokens=True)
    extra = {"enable_thinking": False}
    expected = oracle.apply_chat_template(CHATS[0], add_generation_prompt=True, tokenize=False, **extra)
    assert ours.render(CHATS[0], **extra) == expected


def template_of(text: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, special_tokens, "test")


def test_text_parts_are_joined_and_no_content_is_empty() -> None:
    template = template_of("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": []},
        {"role": "assistant"},
    ]
    before = copy.deepcopy(messages)
    assert template.render(messages) == "[one two][][][]"
    assert messages == before


@pytest.mark.parametrize("content", ["message.content", "message['content']", "content"])
@pytest.mark.parametrize("nothing", [None, "", []])
def test_a_template_that_asks_for_null_sees_it_beside_calls(content: str, nothing: object) -> None:
    # As DeepSeek-R1-Distill's: who has a content has no calls.
    template = template_of(
        "{% for message in messages %}{% set content = message['content'] %}"
        f"{{% if {content} is not none %}}[{{{{ {content} }}}}]"
        "{% else %}{% for call in message.tool_calls %}({{ call.function.name }}){% endfor %}{% endif %}{% endfor %}"
    )
    call = {"type": "function", "function": {"name": "find", "arguments": {}}}
    messages = [
        {"role": "assistant", "content": nothing, "tool_calls": [call, call]},
        {"role": "assistant", "content": "said", "tool_calls": [call]},
        {"role": "assistant", "content": nothing},
        {"role": "tool", "content": nothing},
    ]
    assert template.render(messages) == "(find)(find)[said][][]"


def test_other_parts_are_refused_by_place_and_type() -> None:
    template = template_of("{{ messages }}")
    with pytest.raises(TemplateError, match=r"messages\[0\]\.content\[1\] is of type 'image_url'"):
        template.render([{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}])
    with pytest.raises(TemplateError, match=r"messages\[0\]\.content is 5; a string"):
        template.render([{"role": "user", "content": 5}])


def test_templates_that_join_the_arguments_of_calls_get_them_as_text() -> None:
    source = "{% for c in messages[0].tool_calls %}{{ c.function.name + '|' + c.function.arguments }}{% endfor %}"
    call = {"type": "function", "function": {"name": "find", "arguments": {"a": "é", "b": [1]}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    joined = ChatTemplate({"default": source}, {}, "test").render([message])
    assert joined == 'find|{"a": "é", "b": [1]}'
    written = ChatTemplate({"default": source.replace("arguments", "arguments|tojson")}, {}, "test").render([message])
    assert written == joined
    with pytest.raises(TemplateError, match="cannot render"):
        ChatTemplate({"default": "{{ 'a' + 1 }}"}, {}, "test").render([message])


def test_what_the_template_raises_reaches_the_caller() -> None:
    with pytest.raises(TemplateError, match=r"^a system message must come first$"):
        template_of(CHATML).render([{"role": "user", "content": "x"}, {"role": "system", "content": "y"}])
    with pytest.raises(TemplateError, match="cannot render these messages"):
        template_of("{{ messages[0].content + 1 }}").render(CHATS[0])


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{% for x in range(10000000) %}{% endfor %}",
    ],
)
def test_templates_are_sandboxed(attack: str) -> None:
    with pytest.raises(TemplateError):
        template_of("{{ '' }}" + attack + "{{ 1 }}").render(CHATS[0])


def test_broken_templates_are_named(folder: Callable[..., Path]) -> None:
    with pytest.raises(TokenizerError, match="chat template 'default', line 2"):
        ChatTemplate.load(folder(chat_template="a\n{% if %}"))


def test_without_a_template_only_completions_work(folder: Callable[..., Path]) -> None:
    template = ChatTemplate.load(folder())
    with pytest.raises(NoChatTemplate, match="has no chat template; the model serves completions only"):
        template.render(CHATS[0])


def test_the_file_wins_over_the_config_and_sees_special_tokens(folder: Callable[..., Path]) -> None:
    config = {"bos_token": {"content": "<|start|>"}, "chat_template": "config"}
    assert ChatTemplate.load(folder(tokenizer_config=config)).render(CHATS[0]) == "config"
    path = folder(tokenizer_config=config, chat_template="{{ bos_token }} {{ strftime_now('%Y') }}")
    assert ChatTemplate.load(path).render(CHATS[0]) == f"<|start|> {datetime.now().year}"


def test_named_templates(folder: Callable[..., Path]) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    template = ChatTemplate.load(folder(tokenizer_config={"chat_template": named}))
    assert template.render(CHATS[0]) == "plain"
    assert template.render(CHATS[0], tools=TOOLS) == "tools"
    only = ChatTemplate.load(folder(tokenizer_config={"chat_template": named[1:]}))
    with pytest.raises(NoChatTemplate, match="chat templates tool_use, but none named default"):
        only.render(CHATS[0])


def test_named_templates_in_files_of_their_own_as_transformers_saves_them(saved: Callable[[str], Path]) -> None:
    path = saved("plain")
    before = text_revision(path)
    oracle = AutoTokenizer.from_pretrained(path)
    oracle.chat_template = {"default": "plain", "tool_use": "tools: {{ tools | length }}"}
    oracle.save_pretrained(path)
    (path / "chat_templates").mkdir()  # nothing that is read
    template = ChatTemplate.load(path)
    assert template.render(CHATS[0]) == "plain"
    assert template.render(CHATS[0], tools=TOOLS) == "tools: 1"
    assert text_revision(path) != before
    named = path / "additional_chat_templates" / "tool_use.jinja"
    told = text_revision(path), checkpoint_identity(path)
    named.write_text("other tools")
    assert ChatTemplate.load(path).render(CHATS[0], tools=TOOLS) == "other tools"
    assert not {text_revision(path), checkpoint_identity(path)} & set(told)
    named.write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"tool_use\.jinja: cannot be read"):
        ChatTemplate.load(path)


SHORT_IDS = """{%- for m in messages %}
{%- if m.tool_calls %}{% for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("IDs should have length 9!") }}{% endif %}<{{ call.id }}>{% endfor %}
{%- elif m.role == "tool" %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception("IDs should have length 9!") }}{% endif %}
{{- m.tool_call_id }}={{ m.content }};{% else %}{{ m.content }}{% endif %}{% endfor %}"""
"""As Mistral's templates look at ids."""


def called(*ids: str) -> list[dict[str, Any]]:
    """A turn that calls, and the results in another order."""
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": {}}} for i in ids]
    results = [{"role": "tool", "tool_call_id": i, "content": str(at)} for at, i in reversed(list(enumerate(ids)))]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


def test_ids_of_another_models_calls_are_short_where_a_template_takes_no_others() -> None:
    template = ChatTemplate({"default": SHORT_IDS}, {}, "here")
    text = template.render(called("call_00112233445566778899aabb", "0aB9x7Zq1", "toolu_é"))
    found = re.fullmatch(r"<(\w{9})><0aB9x7Zq1><(\w{9})>(\w{9})=2;0aB9x7Zq1=1;(\w{9})=0;", text)
    assert found is not None, text
    first, last, last_result, first_result = found.groups()
    assert (first, last) == (first_result, last_result)
    assert first != last
    assert template.render(called("call_00112233445566778899aabb")) == f"<{first}>{first}=0;", "as in any other request"


def test_ids_stay_as_they_are_where_a_template_takes_them_and_its_refusals_are_its_own() -> None:
    lenient = ChatTemplate({"default": SHORT_IDS.replace("!= 9", "> 99")}, {}, "here")
    assert lenient.render(called("call_1")) == "<call_1>call_1=0;"
    strict = ChatTemplate(
        {"default": SHORT_IDS + "{{ raise_exception('no ' ~ messages[0].tool_calls[0].id) }}"}, {}, "here"
    )
    with pytest.raises(TemplateError, match="IDs should have length 9"):
        strict.render(called("call_1"))


PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for p in m.content | selectattr('type', 'equalto', 'image') %}<image>"
    "{% endfor %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %};{% endfor %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %};{% endfor %}"
)


@pytest.mark.parametrize("template", [PARTS, EITHER])
def test_templates_of_models_that_see_get_texts_as_they_read_them(template: str) -> None:
    chat = ChatTemplate({"default": template}, {}, "here")
    seen = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what"}]}
    told = {"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "dog"}]}
    asked = {"role": "user", "content": "and"}
    assert chat.render([seen, told, asked], pictures=True) == "user:<image>what;assistant:a dog;user:and;"
    assert chat.render([asked]) == "user:and;"
    with pytest.raises(TemplateError, match=r"messages\[0\].content\[0\] is of type 'image'"):
        chat.render([seen])
