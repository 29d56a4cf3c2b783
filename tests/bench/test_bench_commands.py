"""The benchmark commands run and account for what they did; their timings are nobody's test."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from click.testing import CliRunner

from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import SHAPES, write_random
from headgate.bench.cli import bench
from headgate.bench.engine.speed import EngineBench, bytes_decoding, started
from headgate.bench.engine.workloads import Prompts, Workload, decode, mixed, prefill
from headgate.bench.serving.serve import server
from headgate.bench.serving.servers import no_settings, without_settings
from headgate.engine.engine import Engine
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.loader import load_decoder
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.tokenizer import Tokenizer


@pytest.fixture
def made_up_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring them takes longer than the rest."""
    made_up = Ceilings("a machine", 1, 1e9, {"float32": 1e9})
    monkeypatch.setattr("headgate.bench.ceilings.measure", lambda *_: made_up)


def test_workloads_are_what_the_readme_says() -> None:
    assert prefill().requests == ((512, 1),)
    assert decode(8) == Workload("decode b8", ((128, 96),) * 8)
    assert decode(8, 32) == Workload("decode b8 of 32", ((128, 32),) * 8)
    assert len(mixed().requests) == 64
    assert all(32 <= prompt <= 512 and 16 <= new <= 128 for prompt, new in mixed().requests)
    assert mixed() == mixed()
    assert mixed(16).requests == mixed().requests[:16]


def test_prompts_never_repeat() -> None:
    prompts = Prompts(300)
    workload = Workload("w", ((20, 1),) * 50)
    seen = {prompt for _ in range(4) for prompt, _ in prompts.fill(workload)}
    assert len(seen) == 200
    assert all(10 <= token < 300 for prompt in seen for token in prompt)


def test_engine_bench_writes_its_figures(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["engine", "decode", "--model", str(tiny_checkpoint), "--rounds", "1", "--json", str(out)]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "decode b32" in result.output
    content = json.loads(out.read_text())
    assert [f["workload"] for f in content["figures"]] == ["decode b1", "decode b8", "decode b32"]
    for figure in content["figures"]:
        assert figure["tokens_s"] > 0
        assert figure["decode_tokens_s"] > figure["tokens_s"] * 0.5
        assert 0 < figure["sampling"] < 1
        assert 0 < figure["scheduling"] < 1 - figure["sampling"]
        assert figure["share"] == pytest.approx(figure["rate"] / content["read_gb_s"])


def test_what_decoding_reads_is_counted_step_by_step() -> None:
    facts = SimpleNamespace(weight_bytes_read=lambda batch: 1000.0 + batch, kv_bytes_per_token=10, state_bytes=0)
    info = cast(ModelInfo, facts)
    # 8 prompts of 128 and 96 new tokens, of which the first came with the prompt.
    assert bytes_decoding(info, [(129, 95)] * 8) == 95 * 1008 + 8 * 95 * 10 * (128 + 96 / 2)
    left = [(40, 3), (7, 0), (100, 5), (9, 5)]
    steps = [[known + step for known, count in left if count > step] for step in range(5)]
    assert bytes_decoding(info, left) == sum(1000 + len(each) + 10 * sum(each) for each in steps)
    facts.state_bytes = 7  # read and written
    assert bytes_decoding(info, left) == sum(1000 + len(each) + 10 * sum(each) + 14 * len(each) for each in steps)


def test_a_round_tells_what_is_left_when_all_have_begun(tiny_checkpoint: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", prefix_cache=False, kv_bytes=1 << 22)
    requests = ((5, 3), (9, 8))
    with started(settings, ModelSpec("bench", tiny_checkpoint)) as engine:
        timing = EngineBench(engine, "bench").run(Workload("two", requests))
    assert sum(count for _, count in timing.left) == timing.decode_tokens
    assert [known + count for known, count in timing.left] == [prompt + new for prompt, new in requests]


@pytest.mark.usefixtures("made_up_ceilings")
def test_decoding_can_be_cut_short(tiny_checkpoint: Path) -> None:
    arguments = ["engine", "b1", "--new", "2", "--model", str(tiny_checkpoint), "--rounds", "1"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert "decode b1 of 2" in result.output


@pytest.mark.usefixtures("made_up_ceilings")
def test_answers_that_the_context_cuts_are_no_figure(tiny_checkpoint: Path) -> None:
    arguments = ["engine", "b1", "--new", "100000", "--model", str(tiny_checkpoint), "--rounds", "1"]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 1
    assert "100000 tokens after 128 were asked for" in result.output


def test_restart_bench_loads_what_an_engine_left(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "restart.json"
    arguments = ["engine", "restart", "--tokens", "200", "--model", str(tiny_checkpoint), "--rounds", "2"]
    done = CliRunner().invoke(bench, [*arguments, "--device", "cpu", "--json", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [line.split("  ")[1] for line in done.output.splitlines() if line.startswith("  ")] == [
        "computed", "from the page cache", "from disk",
    ]  # fmt: skip
    content = json.loads(out.read_text())
    assert (content["loaded"], len(content["computed_s"]), len(content["read_load_s"])) == (192, 2, 2)
    refused = CliRunner().invoke(bench, [*arguments, "b1"])
    assert (refused.exit_code, "restart runs alone" in refused.output) == (2, True)


def test_grammar_bench_compares_with_and_without(tiny_checkpoint: Path) -> None:
    options = ["--model", str(tiny_checkpoint), "--weights", "native", "--batch", "2", "--new", "8", "--rounds", "1"]
    done = CliRunner().invoke(bench, ["grammar", *options])
    assert done.exit_code == 0, done.output
    assert "with a schema" in done.output


@pytest.mark.usefixtures("made_up_ceilings")
def test_draft_bench_compares_drafts_and_their_answers(tiny_checkpoint: Path) -> None:
    options = ["--model", str(tiny_checkpoint), "--weights", "native", "--batch", "2", "--new", "24", "--rounds", "1"]
    done = CliRunner().invoke(bench, ["draft", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.count("the same answers") == 4
    names = [line[:15].strip() for line in done.output.splitlines() if "accepted" in line]
    assert names == ["none", "itself", "a tenth other", "noise"]


def test_adapters_bench_compares_rows_with_adapters_and_without(tiny_checkpoint: Path) -> None:
    options = ["--model", str(tiny_checkpoint), "--weights", "native", "--adapters", "2", "--batch", "3", "--new", "4"]
    done = CliRunner().invoke(bench, ["adapters", "--rounds", "1", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "0.1 million in an adapter of rank 16" in " ".join(done.output.split())
    kinds = [line[2:20].strip() for line in done.output.splitlines() if "tokens/s" in line]
    assert kinds == [
        "the bare model",
        "one merged model",
        "2 merged by turns",
        "one adapter",
        "2 adapters",
        "bare and 2",
    ]


@pytest.mark.usefixtures("made_up_ceilings")
@pytest.mark.parametrize(("command", "module"), [("grammar", "speed"), ("draft", "draft"), ("adapters", "adapters")])
def test_a_batch_is_decoded_together(
    command: str, module: str, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[EngineSettings] = []

    class Noted(Engine):
        def __init__(self, settings: EngineSettings, **others: Any) -> None:
            given.append(settings)
            super().__init__(settings, **others)

    monkeypatch.setattr(f"headgate.bench.engine.{module}.Engine", Noted)
    options = ["--model", str(tiny_checkpoint), "--weights", "native", "--batch", "70", "--new", "8", "--rounds", "1"]
    done = CliRunner().invoke(bench, [command, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [settings.max_running for settings in given] == [70]


def test_engine_bench_names_what_it_knows(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["engine", "--model", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "is no folder and none of small, large, qwen3-0.6b, qwen3-moe" in result.output


def test_serve_bench_counts_every_token(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SERVER__PORT", "of the user's own gateway")
    out = tmp_path / "figures.json"
    arguments = ["serve", "--model", str(tiny_checkpoint), "--streams", "4", "--new", "8", "--rounds", "1"]
    result = CliRunner().invoke(bench, [*arguments, "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    content = json.loads(out.read_text())
    assert content["streams"] == 4
    assert content["lost"] == pytest.approx(1 - content["http_tokens_s"] / content["engine_tokens_s"])


def test_a_server_beside_the_engine_has_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, Any]] = []

    @contextmanager
    def noted(settings: Mapping[str, Any], _folder: Path) -> Iterator[SimpleNamespace]:
        given.append(settings)
        yield SimpleNamespace(wait_until_ready=lambda: None)

    monkeypatch.setattr("headgate.bench.serving.serve.gateway", noted)
    settings = EngineSettings(device="cpu", kernels="reference", max_running=3, kv_bytes=1 << 24, prefix_cache=False)
    with server(tmp_path, "native", tmp_path, settings):
        assert EngineSettings(**given[0]["engine"]) == settings


def test_random_checkpoints_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 2}
    small |= {"vocab_size": 32000, "full_attention_interval": 2}
    for shape, config in SHAPES.items():
        monkeypatch.setitem(SHAPES, shape, {**config, **{k: v for k, v in small.items() if k in config}})
        folder = write_random(shape, tmp_path)
        loaded = load_decoder(folder, ReferenceKernels())
        assert loaded.decoder.dtype == torch.bfloat16
        assert loaded.active_parameters <= loaded.parameters
        tokenizer = Tokenizer.load(folder)
        # Every token has a text, or what a random model says would be sent to nobody.
        texts = {tokenizer.decode([token]) for token in range(10, small["vocab_size"])}
        assert len(texts) > 0.99 * small["vocab_size"]
        written = (folder / "model.safetensors").stat().st_mtime_ns
        assert (write_random(shape, tmp_path) / "model.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    "command",
    [
        "audit",
        "batch",
        "cache",
        "demo",
        "engine",
        "gateway",
        "gpu",
        "proxy",
        "quality",
        "redis",
        "routing",
        "serve",
        "soak",
        "start",
        "streams",
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, [command, "--json", str(tmp_path / "nowhere" / "figures.json")])
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_a_command_that_is_told_to_end_leaves_as_by_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def told(*_: object) -> None:
        assert signal.getsignal(signal.SIGTERM) != before, "the process would end at once"
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("headgate.bench.engine.sampling.choose_kernels", told)
    assert CliRunner().invoke(bench, ["sampling"]).exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_compared_uses_the_same_instructions_and_no_settings_of_the_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADGATE_ENGINE__THREADS", "1")
    monkeypatch.setenv("HEADGATE_VECTORS", "avx2")
    assert {n: v for n, v in without_settings().items() if n.startswith("HEADGATE_")} == {"HEADGATE_VECTORS": "avx2"}
    with no_settings():
        assert dict(os.environ) == without_settings()
        assert "HEADGATE_ENGINE__THREADS" not in os.environ
    assert os.environ["HEADGATE_ENGINE__THREADS"] == "1"
