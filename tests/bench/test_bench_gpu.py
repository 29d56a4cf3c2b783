"""`headgate bench gpu` as far as it goes without a GPU: its course, its verdicts, and that they can be bad."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from rich.console import Console
from torch import Tensor

from headgate.bench.ceilings import Ceilings, gpu_ceilings
from headgate.bench.checkpoints import write_without_weights
from headgate.bench.cli import bench
from headgate.bench.engine.workloads import Workload, decode
from headgate.bench.gpu.adapters import adapters_checked
from headgate.bench.gpu.course import stages
from headgate.bench.gpu.engine import engine_speed, kernel_shares, kernel_turns, workloads
from headgate.bench.gpu.flashinfer import prompt_attention
from headgate.bench.gpu.floor import floor_speed
from headgate.bench.gpu.goals import GOALS, against_goals
from headgate.bench.gpu.http import http_speed
from headgate.bench.gpu.parity import compared, engine_tokens, transformers_tokens
from headgate.bench.gpu.prompts import first_tokens
from headgate.bench.gpu.sleep import start_and_sleep
from headgate.bench.gpu.stages import Outcome, Stage, StageFailed, run_stages
from headgate.bench.gpu_check import print_outcome
from headgate.bench.random_tensors import LLAMA_3_8B, QWEN3_30B_A3B, RandomTensors
from headgate.bench.serving.serve import Comparison
from headgate.engine.kernels.checks.inputs import Draw, Sizes
from headgate.engine.kernels.checks.line import Line, relative_error
from headgate.engine.kernels.checks.operations import kernel_checks
from headgate.engine.kernels.checks.rows import SETTINGS, row_checks
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.weights.expert_tensors import expert_tensors
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings

CPU = torch.device("cpu")
SMALL = Sizes(
    hidden=32, width=40, heads=4, kv_heads=2, head_dim=16, experts=6, expert_width=24, per_token=2, tokens=(1, 5),
    decoding=((0, 1), (150, 151)), prompts=((3, 20), (30, 31)), window=9,
)  # fmt: skip
CEILINGS = Ceilings("test", 1, 1e9, {"bfloat16": 1e12})
# What the machine with the GPU has beside the standard library; the gateway's packages are not among it.
ABSENT = ("aiohttp", "anthropic", "llguidance", "msgspec", "openai", "pydantic", "redis", "uvloop")


def test_a_stage_that_fails_keeps_what_it_had_and_stops_nobody() -> None:
    now, outcomes = [0.0], list[Outcome]()

    def works(seconds: float) -> Iterator[Line]:
        now[0] += seconds
        yield Line("a", "good")

    def breaks() -> Iterator[Line]:
        yield from works(1)
        raise RuntimeError("device-side assert")

    course = [
        Stage("first", 10, breaks),
        Stage("second", 10, lambda: works(50)),
        Stage("too long", 60, lambda: works(1)),
        Stage("short", 40, lambda: works(1)),
    ]
    run_stages(course, 100, outcomes.append, lambda: now[0])
    assert [(o.name, o.seconds, len(o.lines), o.failure, o.ok) for o in outcomes] == [
        ("first", 1, 1, "RuntimeError: device-side assert", False),
        ("second", 50, 1, "", True),
        ("too long", 0, 0, "not run: 49 s were left", False),
        ("short", 1, 1, "", True),
    ]
    assert outcomes[0].as_json()["ok"] is False


def test_a_broken_kernel_breaks_no_json() -> None:
    outcome = Outcome("kernels", 1.0, (Line("norm", "error inf", {"error": math.inf, "allowed": 0.01}, ok=False),))
    told = json.loads(json.dumps(outcome.as_json(), allow_nan=False))
    assert told["lines"][0] == {
        "name": "norm", "text": "error inf", "figures": {"error": None, "allowed": 0.01}, "ok": False,
    }  # fmt: skip


def test_what_is_wrong_is_marked() -> None:
    console = Console(width=100, record=True, quiet=False)
    print_outcome(Outcome("kernels", 1.25, (Line("norm", "error 3e-1", ok=False), Line("gate", "fine"))), console)
    assert console.export_text().splitlines() == ["kernels: 1.2 s", "  WRONG norm: error 3e-1", "  gate: fine"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_small_error(bad: float) -> None:
    sound = torch.tensor([3.0, 4.0])
    assert relative_error(sound, sound) == 0
    assert relative_error(sound * 1.1, sound) == pytest.approx(0.1)
    assert relative_error(torch.tensor([bad, 4.0]), sound) == float("inf")
    assert relative_error(sound, torch.tensor([bad, 4.0])) == float("inf")


class Broken(ReferenceKernels):
    """One operation leaves a row out, another gives something else each time."""

    calls = 0

    def swiglu(self, gate_up: Tensor, into: object = None) -> Tensor:
        out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
        out[1:] = super().swiglu(gate_up, into)[1:]
        return out

    def paged_attention(self, *arguments: object) -> Tensor:
        self.calls += 1
        return super().paged_attention(*arguments) * (1 + 1e-7 * self.calls)  # type: ignore[arg-type]


def test_checks_find_what_is_wrong_and_nothing_else() -> None:
    def wrong(kernels: ReferenceKernels) -> set[str]:
        lines = kernel_checks(kernels, CPU, torch.float32, SMALL)
        return {line.name.split(",")[0] for line in lines if not line.ok}

    # Plain torch rounds activations to int8 too, which Triton's layers do not.
    plain = {f"{fmt} {layer}" for fmt in ("int8", "int4") for layer in ("weights", "mixture")}
    assert wrong(ReferenceKernels()) == plain
    assert wrong(Broken()) == plain | {"swiglu", "native weights", "attention", "a step's attention"}


def test_ceilings_count_what_is_read_and_written() -> None:
    found = gpu_ceilings(CPU, lambda _: 0.5, copied=1 << 10, edge=8)
    assert (found.read_bytes_s, found.peak("bfloat16")) == (4096, 2048)


def test_answers_are_those_of_transformers(tiny_checkpoint: Path) -> None:
    prompts = [(11, 200, 37), tuple(range(20, 60))]
    sampling = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True)
    ours = engine_tokens(tiny_checkpoint, prompts, sampling, "reference", "cpu", ahead=True)
    theirs = transformers_tokens(tiny_checkpoint, prompts, 9, "cpu")
    assert [len(answer) for answer in ours] == [9, 9]
    assert compared("tiny", ours, theirs, "them").ok
    other = compared("tiny", ours, [theirs[0], [*theirs[1][:4], -5, *theirs[1][5:]]], "them")
    assert not other.ok
    assert other.text.endswith("same tokens of each: [9, 4]")


def test_steps_on_rows_are_checked() -> None:
    class Wrong(ReferenceRows):
        def choose(self, *given: Any) -> tuple[Tensor, Tensor]:
            chosen, logprobs = super().choose(*given)
            return torch.where(chosen < 0, chosen, (chosen + 1) % 300), logprobs

    def wrong(rows: ReferenceRows) -> set[str]:
        return {line.name for line in row_checks(rows, Draw(CPU, torch.float32), 300, 2) if not line.ok}

    assert not wrong(ReferenceRows())
    assert wrong(Wrong()) == {"log-probabilities", *(f"chosen by {name}" for name in SETTINGS)}


def test_attention_of_long_prompts_is_checked_and_stands_beside_ours() -> None:
    """What is taken here for both is plain torch, of which one is wrong later on."""

    class Off(ReferenceKernels):
        def paged_attention(self, *args: Any) -> torch.Tensor:
            return super().paged_attention(*args) * 1.1

    times = iter([2.0, 3.0] * 2)
    draw, models, steps = Draw(CPU, torch.float32), {"small": (2, 1, 3)}, {"long": [(0, 40)]}
    for kernels, good in ((ReferenceKernels(), True), (Off(), False)):
        found = prompt_attention(
            draw, kernels, ReferenceKernels(), models, steps, lambda call: (call(), next(times))[1]
        )
        check, timing = found
        assert (check.name, check.ok) == ("a mixed step, small, float32", good)
        assert timing.text == "2,000,000 µs, ours alone 3,000,000 (1.50)"


def test_a_profile_says_where_the_time_goes() -> None:
    spent = [("norm", 0.1, 40), ("product", 0.5, 80), ("copy", 0.0, 1)]
    whole, *kernels = kernel_shares("batch 1", spent, 20, 0.8, most=2)
    assert whole.text == "20 steps of 40,000 µs, the device busy for 75% of them"
    assert [line.text for line in kernels] == [
        "25,000.0 µs a step, 83%, 4.0 launches",
        "5,000.0 µs a step, 17%, 2.0 launches",
    ]


def test_a_launch_that_begins_early_counts_from_when_it_has_waited() -> None:
    spans = [("a", 0.0, 1.0), ("b", 0.5, 1.25), ("a", 1.0, 2.0), ("b", 3.0, 4.0)]
    assert kernel_turns(spans) == [("a behind nothing", 1.0, 1), ("b behind a", 1.25, 2), ("a behind b", 0.75, 1)]


def test_a_profile_runs_where_no_device_has_kernels(tiny_checkpoint: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", decode_ahead=True, kv_bytes=1 << 24)
    (line,) = engine_speed(tiny_checkpoint, settings, CEILINGS, (), profiled=(decode(1, 4),))
    assert (line.name, line.figures["steps"], line.figures["busy_seconds"]) == ("profile, decode b1 of 4", 4, 0)


def test_the_floor_is_what_transformers_does(tiny_checkpoint: Path) -> None:
    # On a CPU it must be told how much memory it may have.
    config = transformers.ContinuousBatchingConfig(
        page_size=16, num_blocks=16, max_batch_tokens=64, use_cuda_graph=False
    )
    (line,) = floor_speed(tiny_checkpoint, "cpu", (Workload("two", ((20, 4), (12, 3))),), config)
    assert line.name == "two"
    assert line.figures["tokens_s"] > 0


def test_a_start_is_timed_and_a_sleep_must_give_memory_back(tiny_checkpoint: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", decode_ahead=True, kv_bytes=1 << 24)
    for given, good in ((1 << 40, True), (0, False)):
        free = iter([0, given])
        lines = list(start_and_sleep(tiny_checkpoint, settings, lambda free=free: next(free)))  # type: ignore[misc]
        assert [line.name for line in lines] == ["first start", "warm start", "falling asleep", "waking"]
        assert [line.ok for line in lines] == [True, True, good, True]
        assert all(line.figures["seconds"] > 0 for line in lines)


def test_first_tokens_are_timed_and_held_to_each_other(tiny_checkpoint: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", decode_ahead=True, kv_bytes=1 << 24)
    lines = list(first_tokens(tiny_checkpoint, settings, lengths=(3, 20)))
    assert [(line.name, line.ok) for line in lines] == [("prompt of 3", True), ("prompt of 20", True)]
    assert all(line.text.endswith("the same") for line in lines)
    assert all(line.figures["seconds"] > 0 and line.figures["kernel_by_kernel_seconds"] > 0 for line in lines)


def test_rows_with_adapters_are_held_to_what_their_models_say_alone(tiny_checkpoint: Path, tmp_path: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", decode_ahead=True, kv_bytes=1 << 24)
    lines = list(adapters_checked(tiny_checkpoint, settings, tmp_path, 3, 5))
    assert [line.ok for line in lines] == [True] * 9
    assert [line.figures["off"] < 1e-4 for line in lines[:6]] == [True] * 6
    assert lines[5].figures["bare"] > 1e-3
    assert all(line.figures["decode_tokens_s"] > 0 for line in lines[6:])


def test_streams_over_http_stand_beside_the_engine_with_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", kv_bytes=1 << 24, decode_ahead=True)
    compared: list[object] = []

    def alternated(*given: object) -> Comparison:
        compared.extend(given)
        return Comparison(5, 1000.0, 950.0, 0.01, 0.1, 2.0, 0.3, 0.4, 0.5, 0.6)

    monkeypatch.setattr("headgate.bench.serving.serve.alternated", alternated)
    (line,) = http_speed(tmp_path / "model", settings, tmp_path, streams=5, new=6, rounds=2)
    assert line.name == "5 streams"
    assert line.figures["lost"] == pytest.approx(0.05)
    assert (line.figures["step_share"], line.figures["engine_step_share"]) == (0.5, 0.6)
    work = Workload("5 streams", ((64, 6),) * 5)
    assert compared == [tmp_path / "model", "native", settings, work, tmp_path, 2, 8.0]
    with pytest.raises(StageFailed, match="not run: two engines take 120 GiB, and 79 GiB are free"):
        list(http_speed(tmp_path, replace(settings, kv_bytes=60 << 30), tmp_path, free=79 << 30))
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "headgate.gateway.app")
    monkeypatch.delattr("headgate.gateway.app")
    with pytest.raises(StageFailed, match="the gateway's package aiohttp is not installed"):
        list(http_speed(tmp_path, settings, tmp_path))


def test_goals_are_reached_missed_or_not_measured() -> None:
    assert {goal.stage for goal in GOALS} <= {stage.name for stage in stages(Path("unused"))}
    first, last = GOALS[0], GOALS[-1]
    outcomes = [
        Outcome(first.stage, 1.0, (Line(first.line, "", {first.figure: 1500.0}),)),
        Outcome(last.stage, 1.0, (Line(last.line, "", {last.figure: 12.0}),)),
    ]
    told = list(against_goals(outcomes))
    assert all(line.ok for line in told)
    assert told[0].text == "1,500 tokens/s, reached: at least 1,450"
    assert told[1].text == "not measured; at least 22,000 tokens/s"
    assert told[-1].text == "12 s, MISSED: at most 10"


def test_engine_is_timed(tiny_checkpoint: Path) -> None:
    settings = EngineSettings(device="cpu", kernels="reference", prefix_cache=False, kv_bytes=1 << 22)
    work = Workload("prompt", ((30, 1),)), Workload("two", ((5, 3), (9, 4)))
    lines = [*engine_speed(tiny_checkpoint, settings, CEILINGS, work)]
    assert [line.name for line in lines] == ["prompt", "two"]
    assert "decode_tokens_s" in lines[1].figures
    script = workloads()[-1]
    assert len(script.requests) == 256
    assert all(100 <= n <= 1024 for request in script.requests for n in request)


@pytest.mark.parametrize("fp8", [False, True])
def test_models_that_nobody_wrote_are_timed(tmp_path: Path, *, fp8: bool) -> None:
    small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 4096}  # fmt: skip
    experts = {"head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
    settings = EngineSettings(device="cpu", kernels="reference", prefix_cache=False, kv_bytes=1 << 22)
    for name, config in (("dense", {**LLAMA_3_8B, **small}), ("mixture", {**QWEN3_30B_A3B, **small, **experts})):
        folder = write_without_weights(name, config, tmp_path)
        tensors = partial(RandomTensors, device=CPU, fp8=fp8)
        (line,) = engine_speed(folder, settings, CEILINGS, (Workload("two", ((5, 3), (9, 4))),), tensors)
        assert "decode_tokens_s" in line.figures


def test_projections_of_models_that_nobody_wrote_come_in_fp8_experts_too(tmp_path: Path) -> None:
    spec = read_spec({**QWEN3_30B_A3B, "num_experts": 3, "num_experts_per_tok": 2})
    experts = expert_tensors(RandomTensors(tmp_path, CPU, fp8=True), "model.layers.0", spec)
    assert len(experts) == 3
    assert all(isinstance(matrix, Fp8Weight) for expert in experts for matrix in expert.matrices)


def test_it_says_what_it_needs() -> None:
    result = CliRunner().invoke(bench, ["gpu"])
    assert result.exit_code == 2
    assert result.output == "headgate bench gpu needs a CUDA device, and torch sees none here\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--only", "http"), "no stage has 'http' in its name; they are ceilings, kernels, bfloat16, steps on rows, "),
        (("--json", "nowhere/gpu.json"), "folder 'nowhere' does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_run(options: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(bench, ["gpu", *options])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_a_bare_host_can_run_it() -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))"
    run = "import runpy; runpy.run_module('headgate.bench.gpu_check', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", f"{block}; {run}"], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "needs a CUDA device" in done.stderr
