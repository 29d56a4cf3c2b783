"""What `headgate config` says of upstreams."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_site import forget_environment

from headgate.gateway.cli import main

GOOD = """\
models: []
teams: {folder: null}
upstreams:
  - id: one
    base_url: http://127.0.0.1:9/v1
    model: m
    api_key: env:ONE_KEY
    headers: {x-org: env:ONE_ORG, x-plain: hush-hush}
    tier: small
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("ONE_KEY", "sk-secret-of-one")
    monkeypatch.setenv("ONE_ORG", "org-secret")


def told(tmp_path: Path, text: str, command: str = "check") -> tuple[int, str]:
    file = tmp_path / "headgate.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["config", command, str(file)])
    return result.exit_code, result.output.replace(str(file), "FILE")


def test_a_file_of_upstreams_alone_is_valid_and_no_secret_is_shown(tmp_path: Path) -> None:
    for command in ("check", "diff"):
        code, output = told(tmp_path, GOOD, command)
        assert code == 0, output
        assert not any(secret in output for secret in ("sk-secret", "org-secret", "hush-hush"))
    assert "1 model (one)" in told(tmp_path, GOOD)[1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("env:ONE_KEY", "env:NO_KEY", "FILE:7: 'upstreams[0].api_key': the variable NO_KEY is not set"),
        ("env:ONE_KEY", "file:/no/key", "FILE:7: 'upstreams[0].api_key': the file /no/key cannot be read"),
        ("env:ONE_KEY", "sk-literal-123", "FILE:7: 'upstreams[0].api_key' is '…': String should match pattern"),
        ("env:ONE_ORG", "env:NO_ORG", "FILE:8: 'upstreams[0].headers.x-org': the variable NO_ORG is not set"),
        ("x-org", "authorization", "FILE:8: 'upstreams[0].headers' is {…}: the header 'authorization' is set by"),
        ("http://127.0.0.1:9/v1", "ftp://x", "FILE:5: 'upstreams[0].base_url' is 'ftp://…': not an http:// or https://"),
        ("http://127.0.0.1:9/v1", "http://me:pw-1@x", "'upstreams[0].base_url' is '…@x': a URL with a user or"),
        ("tier: small", "price: {usd_per_million_prompt_tokens: -1}", "FILE:9: 'upstreams[0].price.usd_per_"),
        ("tier: small", "timeout: {}", "FILE:9: unknown key 'upstreams[0].timeout'. Did you mean 'timeouts'?"),
        ("    model: m\n", "    model: m\n    serves: [rerank]\n", "tier is for what serves chat; 'one' serves rerank"),
        ("tier: small", "serves: []", "FILE:9: 'upstreams[0].serves'"),
        ("tier: small", "serves: [reranking]", "FILE:9: 'upstreams[0].serves"),
        ("tier: small", "price: {usd_per_image: -1}", "FILE:9: 'upstreams[0].price.usd_per_image'"),
        ("    model: m\n", "", "key 'upstreams[0].model' is missing"),
        ("id: one", "id: auto", "FILE:4: 'upstreams[0].id' is 'auto': 'auto' is a route, not an id"),
        ("id: one", "id: all-minilm-l6-v2", "FILE:4: 'upstreams[0].id': 'all-minilm-l6-v2' is also embeddings.id"),
        ("models: []", "models: [{id: one, path: x}]", "FILE:4: 'upstreams[0].id': 'one' is also the id of a model"),
        ("models: []", "models: []\nrouting: {chain: [two]}", "FILE:2: 'routing.chain[0]': there is no model 'two'"),
        ("  - id: one", "  - {id: one, base_url: 'http://x', model: m}\n  - id: one", "the id 'one' is given twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    code, output = told(tmp_path, GOOD.replace(old, new, 1))
    assert code == 1
    assert message in output
    assert not any(secret in output for secret in ("literal-123", "pw-1", "sk-secret"))


def test_a_chain_may_name_an_upstream_and_nothing_at_all_is_refused(tmp_path: Path) -> None:
    assert told(tmp_path, GOOD + "routing: {chain: [one]}\n")[0] == 0
    code, output = told(tmp_path, "models: []\nteams: {folder: null}\n")
    assert (code, "at least one model or upstream is needed" in output) == (1, True)
