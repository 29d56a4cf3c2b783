"""Configuration: sources, refusals and the documented file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_site import forget_environment
from team_files import write_team

from headgate.gateway.cli import main
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import load_settings
from headgate.gateway.settings import Settings

DOCUMENTED = Path(__file__).parents[2] / "config" / "headgate.yaml"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


def problems(tmp_path: Path, text: str) -> tuple[str, ...]:
    file = tmp_path / "headgate.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    return caught.value.problems


def test_no_file_is_needed() -> None:
    settings = load_settings(None)
    assert [(m.id, m.tier) for m in settings.models] == [("demo-student", "small"), ("demo-teacher", "large")]
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8000)


def test_the_documented_file_holds_exactly_the_defaults() -> None:
    assert load_settings(DOCUMENTED) == load_settings(None)


def test_the_documented_file_names_every_key() -> None:
    text = DOCUMENTED.read_text()

    def names(schema: dict[str, object]) -> set[str]:
        found: set[str] = set()
        for definition in (schema, *schema["$defs"].values()):
            found |= set(definition.get("properties", {}))
        return found

    missing = [name for name in names(Settings.model_json_schema()) if f"{name}:" not in text]
    assert missing == []


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text("server:\n  port: 9001\n  host: 0.0.0.0\n")
    monkeypatch.setenv("HEADGATE_SERVER__PORT", "9002")
    server = load_settings(file).server
    assert (server.port, server.host, server.drain_s) == (9002, "0.0.0.0", 20.0)


def test_sizes_take_units(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text("cache: {exact: {max_bytes: 2MiB}}\n")
    assert load_settings(file).cache.exact.max_bytes == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "place", "hints"),
    [
        ("server:\n  prot: 1\n", ":2:", ["'server.prot'", "'port'"]),
        ("cachee: {}\n", ":1:", ["'cachee'", "'cache'"]),
        ("models:\n  - id: a\n    path: x\n    teir: small\n", ":4:", ["'models[0].teir'", "'tier'"]),
        ("models:\n  - id: a\n", ":2:", ["'models[0].path' is missing"]),
        ("server:\n  host: ''\n", ":2:", ["'server.host' is ''", "at least 1 character"]),
        ("teams:\n  folder: ''\n", ":2:", ["'teams.folder' is ''"]),
        ("cache:\n  journal: ''\n", ":2:", ["'cache.journal' is ''"]),
        ("responses:\n  ttl_s: .inf\n", ":2:", ["'responses.ttl_s' is inf", "finite"]),
        ("server:\n  port: 99999\n", ":2:", ["'server.port' is 99999", "65535"]),
        ("cache: {semantic: {enabled: maybe}}\n", ":1:", ["'maybe'", "'auto'", "boolean"]),
        ("cache:\n  redis: localhost:6379\n", ":2:", ["'cache.redis' is 'localhost:6379'", "redis://", "auto", "off"]),
        ("cache: {redis: 5}\n", ":1:", ["'cache.redis' is 5"]),
        ("cache: {redis_timeout_s: 0}\n", ":1:", ["'cache.redis_timeout_s' is 0"]),
        ("models: []\n", ":1: at least one model", []),
        ("models: [{id: auto, path: x}]\n", ":1:", ["'auto'", "tier"]),
        ("models: [{id: a, path: 'demo:techer'}]\n", ":1:", ["demo:techer", "demo:teacher"]),
        ("models: [{id: a, path: x}, {id: a, path: y}]\n", ":1:", ["'a' is given twice"]),
        (
            "models:\n  - {id: a, path: x, hand_over: No.}\n",
            ":2:",
            ["hand_over is for models of tier small", "not set"],
        ),
        ("models:\n  - {id: a, path: x, tier: small, hand_over: ''}\n", ":2:", ["'models[0].hand_over' is ''"]),
        ("server: {port: 1}\nserver: {port: 2}\n", "headgate.yaml:", [":2: not YAML: the key 'server' is given twice"]),
        ("- 1\n", "headgate.yaml:", ["mapping"]),
        ("a: [\n", "headgate.yaml:", ["not YAML"]),
        ("server:\n  port: !!int x\n", ":2: not YAML: 'x' is no valid int", ["quotes"]),
        ("server:\n  port: !!timestamp x\n", ":2: not YAML: 'x' is no valid timestamp", []),
        ("a: " + "[" * 5000, "nested too deeply", []),
        ("server:\n\tport: 1\n", ":2: not YAML: found character '\\t'", []),
    ],
)
def test_refusals_name_file_line_key_and_what_is_accepted(
    tmp_path: Path, text: str, place: str, hints: list[str]
) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(f"{tmp_path / 'headgate.yaml'}")
    assert place in problem
    for hint in hints:
        assert hint in problem


ROUTING = """\
models:
  - {id: a, path: x, tier: small}
  - {id: b, path: y, tier: large}
routing:
"""


@pytest.mark.parametrize(
    ("text", "place", "hints"),
    [
        ("  chain: [a, teacher]\n", ":5:", ["'routing.chain[1]'", "no model 'teacher'", "The models are a, b"]),
        ("  chain: []\n", ":5:", ["'routing.chain' is []", "at least 1 item"]),
        ("  chain: [a, a]\n", ":5:", ["'a' is given twice"]),
        ("  threshold: 1.5\n", ":5:", ["'routing.threshold' is 1.5"]),
        ("  thresold: 0.5\n", ":5:", ["unknown key 'routing.thresold'", "threshold"]),
        ("  chain: [a, b]\ndefaults: {models: {allow: [a]}}\n", ":5:", ["'routing.chain[1]'", "models allowed are a"]),
        ("  escalations: 0.2\ndefaults: {models: {deny: [a]}}\n", ":5:", ["limited to 0.2", "tier small"]),
        ("  cascade: {enabled: true}\n  escalations: 0\n", ":5:", ["limited to 0"]),
        ("  cascade: {enabled: true}\ndefaults: {models: {allow: [a]}}\n", ":5:", ["needs both tiers", "tier large"]),
        (
            "  max_loss: 0.1\ndefaults:\n  models: {deny: [a]}\n  budgets: {daily_usd: 1, on_exceed: downgrade}\n",
            ":8:",
            ["'defaults.budgets.on_exceed'", "downgrade to the tier small, but no model allowed has it"],
        ),
        ("  breaker: {open_s: 90}\n", ":5:", ["open_s (90.0) must not be above longest_s (60.0)"]),
        (
            "  max_loss: 0.1\ndefaults:\n  models:\n    deny: [c]\n",
            ":8:",
            ["models.deny[0]'", "no model 'c'"],
        ),
        ("  max_loss: 0.1\ndefaults:\n  models:\n    allow: []\n", ":8:", ["'defaults.models.allow' is []"]),
        ("  max_loss: 0.1\ndefaults:\n  models:\n    deny: [a, b]\n", ":8:", ["no model is left"]),
    ],
)
def test_policies_that_cannot_be_meant_are_refused_with_the_line(
    tmp_path: Path, text: str, place: str, hints: list[str]
) -> None:
    (problem,) = problems(tmp_path, ROUTING + text)
    assert place in problem
    for hint in hints:
        assert hint in problem


def test_policies_that_can_be_meant_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(
        ROUTING + "  chain: [b, a]\n  escalations: 0.3\n  cascade: {enabled: true}\n"
        "defaults: {models: {allow: [a, b], aliases: {gpt-4o: large}, default: gpt-4o}}\n"
    )
    assert load_settings(file).defaults.models.default == "gpt-4o"


def test_files_of_task_classes_are_read_with_the_settings(tmp_path: Path) -> None:
    classes = tmp_path / "legal.yaml"
    (problem,) = problems(tmp_path, ROUTING + f"  classes: [{classes}]\n")
    assert "routing.classes" in problem
    assert "legal.yaml" in problem
    classes.write_text("classes:\n  - {name: math, tier: small, examples: [Add these.]}\n")
    (problem,) = problems(tmp_path, ROUTING + f"  classes: [{classes}]\n")
    assert "legal.yaml:2: classes[0].name is 'math', which is taken" in problem
    classes.write_text("classes:\n  - {name: contracts, tier: large, examples: [Review clause 4.]}\n")
    file = tmp_path / "headgate.yaml"
    assert load_settings(file).routing.classes == (str(classes),)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("auto", "auto"),
        ("off", None),
        ("'off'", None),
        ("null", None),
        ("redis://localhost", "redis://localhost"),
        ("rediss://user:p%40ss@redis.example:6380/2", "rediss://user:p%40ss@redis.example:6380/2"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
    ],
)
def test_redis_is_auto_off_or_a_url(tmp_path: Path, given: str, read: str | None) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(f"cache:\n  redis: {given}\n")
    settings = load_settings(file)
    assert settings.cache.redis == read
    assert "p%40ss" not in repr(settings)


@pytest.mark.parametrize(
    "url",
    [
        "redis//:hunter2@localhost",
        "http://:hunter2@localhost",
        "redis://:hunter2@",
        "redis://:hunter2@localhost:0",
        "redis://:hunter2@localhost:99999",
        "redis://:hunter2@localhost/first",
        "redis://:hunter2@localhost?db=1",
        "redis://:hunter2/x@localhost",
        "redis://:hunter2#x@localhost",
        "redis://:hunter2[x@localhost",
        "redis://:hunter2",
    ],
)
def test_a_wrong_redis_url_is_refused_without_telling_its_password(tmp_path: Path, url: str) -> None:
    (problem,) = problems(tmp_path, f"cache:\n  redis: '{url}'\n")
    assert "'cache.redis' is '" in problem
    assert "accepted are auto" in problem
    assert "hunter2" not in problem


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "server: {port: -1, hots: x}\nengine: {block_size: 0}\n")) == 3


@pytest.mark.parametrize(
    ("name", "value", "hints"),
    [
        ("HEADGATE_SERVR__PORT", "1", ["HEADGATE_SERVR__PORT", "HEADGATE_SERVER__PORT"]),
        ("HEADGATE_SERVER__PROT", "1", ["HEADGATE_SERVER__PROT", "'port'"]),
        ("HEADGATE_SERVER__PORT", "many", ["HEADGATE_SERVER__PORT", "'many'"]),
        ("HEADGATE_ENGINE__THREADS", "100000", ["threads", "1024"]),
        ("HEADGATE_MODELS", "[x", ["models"]),
    ],
)
def test_wrong_variables_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, hints: list[str]) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load_settings(None)
    for hint in hints:
        assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["HEADGATE_VECTORS", "HEADGATE_PEERS"])
def test_variables_that_are_no_settings_are_no_mistake(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "avx2")
    load_settings(None)


def test_variables_that_hold_secrets_are_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_LAPTOP_KEY", "s3cret")
    file = tmp_path / "headgate.yaml"
    file.write_text(json.dumps({"teams": {"folder": str(tmp_path / "teams")}}))
    write_team(tmp_path / "teams", "research", {"id": "laptop", "secret": "env:HEADGATE_LAPTOP_KEY"})
    monkeypatch.setenv("HEADGATE_OTEL_TOKEN", "s3cret")
    monkeypatch.setenv("HEADGATE_TELEMETRY__OTEL", '{"headers": {"authorization": "env:HEADGATE_OTEL_TOKEN"}}')
    assert load_settings(file).teams.folder == str(tmp_path / "teams")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADGATE_VECTORS", "avx2"),  # of the kernels, docs/kernels.md
        ("HEADGATE_PEERS", "/opt/peers"),  # of a benchmark, docs/performance.md
        ("HEADGATE_NO_NATIVE", "1"),  # of the build, which `make serve` does first
        ("HEADGATE_KEY", "hg-1"),  # of clients, docs/clients.md
        # Pods are told these of a Service named headgate, or headgate-server.
        ("HEADGATE_PORT", "tcp://10.0.0.7:8000"),
        ("HEADGATE_SERVICE_HOST", "10.0.0.7"),
        ("HEADGATE_SERVICE_PORT", "8000"),
        ("HEADGATE_SERVICE_PORT_HTTP", "8000"),
        ("HEADGATE_PORT_8000_TCP", "tcp://10.0.0.7:8000"),
        ("HEADGATE_PORT_8000_TCP_ADDR", "10.0.0.7"),
        ("HEADGATE_SERVER_PORT", "tcp://10.0.0.7:8000"),
    ],
)
def test_variables_that_mean_something_elsewhere_are_no_mistake(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert load_settings(None).server.port == 8000


@pytest.mark.parametrize("name", ["HEADGATE_PORT", "HEADGATE_SERVER_PORT"])
def test_a_port_under_a_wrong_name_is_a_mistake(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "9000")
    with pytest.raises(ConfigError, match="HEADGATE_SERVER__PORT"):
        load_settings(None)


def test_a_variable_may_be_null(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORAGE__FOLDER", "TEAMS__FOLDER", "CACHE__REDIS", "ROUTING__QUALITY", "ENGINE__THREADS"):
        monkeypatch.setenv(f"HEADGATE_{name}", "null")
    settings = load_settings(None)
    assert (settings.storage.folder, settings.teams.folder, settings.cache.redis) == (None, None, None)
    assert (settings.routing.quality, settings.engine.threads) == (None, None)


def test_config_check_and_schema_on_the_command_line(tmp_path: Path) -> None:
    runner = CliRunner()
    good = runner.invoke(main, ["config", "check", str(DOCUMENTED)])
    assert good.exit_code == 0
    assert "demo-student" in good.output
    bad = tmp_path / "bad.yaml"
    bad.write_text("servr: {}\n")
    refused = runner.invoke(main, ["config", "check", str(bad)])
    assert refused.exit_code == 1
    assert "'server'" in refused.output
    schema = json.loads(runner.invoke(main, ["config", "schema"]).output)
    assert schema["properties"]["server"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "text",
    [
        "cache: {secret: 'file:/nowhere/secret'}",
        "cache: {semantic: {audit: {labels: /nowhere/labels.json}}}",
        "cache: {semantic: {enabled: true, embedder: /nowhere/model}}",
        "telemetry: {otel: {enabled: true, headers: {authorization: 'file:/nowhere/token'}}}",
    ],
)
def test_config_check_finds_what_a_start_would(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(text)
    refused = CliRunner().invoke(main, ["config", "check", str(file)])
    assert refused.exit_code == 1
    assert "/nowhere/" in refused.output


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "nowhere.yaml")])
    assert result.exit_code == 1
    assert "nowhere.yaml" in result.output


def test_several_models_may_share_a_tier(tmp_path: Path) -> None:
    file = tmp_path / "tiers.yaml"
    file.write_text("models: [{id: a, path: x, tier: small}, {id: b, path: y, tier: small}]\n")
    assert [m.tier for m in load_settings(file).models] == ["small", "small"]


def test_the_reference_is_current() -> None:
    page = (DOCUMENTED.parents[1] / "docs" / "configuration.md").read_text()
    printed = CliRunner().invoke(main, ["config", "reference"]).output
    assert page == printed, "run: headgate config reference > docs/configuration.md"
    assert "| `server.port` | whole number | `8000` |" in page
    assert "| `limits.per_user.concurrency` | whole number or null | `null` |" in page


def test_differences_are_told_value_by_value(tmp_path: Path) -> None:
    write_team(tmp_path / "teams", "red", {"id": "a", "secret": "env:NOBODY"}, limits={"max_n": 2})
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    folder = json.dumps({"folder": str(tmp_path / "teams")})
    old.write_text("cache: {redis: 'redis://:hunter2@old'}\n")
    new.write_text(f"server: {{port: 9}}\nteams: {folder}\ncache: {{redis: 'redis://:hunter2@new'}}\n")
    told = CliRunner().invoke(main, ["config", "diff", str(new), "--against", str(old)]).output.splitlines()
    assert [line for line in told if "port" in line] == ["- server.port: 8000", "+ server.port: 9"]
    assert "+ team red: limits.max_n: 2" in told
    assert '+ team red: keys[a].secret: "env:NOBODY"' in told
    assert "- cache.redis: redis://…" in told
    assert "hunter2" not in "".join(told)
    assert not any("max_tokens" in line for line in told), "what a file leaves as it is is no difference"
    same = CliRunner().invoke(main, ["config", "diff", str(new), "--against", str(new)])
    assert (same.exit_code, same.output) == (0, "")


def test_editors_get_a_schema_of_team_files() -> None:
    schema = json.loads(CliRunner().invoke(main, ["config", "schema", "--team"]).output)
    assert schema["required"] == ["team"]
    assert {"keys", "limits", "budgets", "models"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
