"""Matches against other engines: who plays, how rounds are counted, what is kept. Timings are nobody's test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import SHAPES
from headgate.bench.cli import bench
from headgate.bench.engine.workloads import Workload
from headgate.bench.peers.entrants import PEERS, Entrant, entrants
from headgate.bench.peers.footprint import Footprint
from headgate.bench.peers.match import Match, play
from headgate.bench.peers.process import EngineFailed, EngineProcess, ours
from headgate.bench.peers.protocol import About, Round, Stopwatch
from headgate.bench.peers.report import plot
from headgate.gateway import WAITING

_ABOUT = About("x 1", "settings", 600_000_000, 2.0, "int8")
_CEILINGS = Ceilings("machine", 2, 40e9, {"float32": 0.2e12, "bfloat16": 0.8e12, "int8": 1.8e12})


def _match(ours: tuple[Round, ...], theirs: tuple[Round, ...]) -> Match:
    return Match("qwen3-0.6b", "int8", "p:f", "decode b1", ((128, 96),), _ABOUT, _ABOUT, ours, theirs)


def test_a_bare_name_means_the_formats_of_our_class() -> None:
    assert [e.name for e in entrants("llama.cpp,openvino", 8)] == ["llama.cpp:q8_0", "llama.cpp:bf16", "openvino:int8"]
    assert [e.name for e in entrants("llama.cpp,openvino", 4)] == [
        "llama.cpp:q4_0", "llama.cpp:q4_k_m", "openvino:int4",
    ]  # fmt: skip
    assert [e.name for e in entrants("vllm:bf16", 8)] == ["vllm:bf16"]


@pytest.mark.parametrize(
    ("asked", "bits", "words"),
    [("ollama", 8, "no peer"), ("vllm:q4", 8, "w8a8, bf16"), ("transformers", 4, "no format under 8 bits")],
)
def test_unknown_entrants_are_named(asked: str, bits: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        entrants(asked, bits)


def test_the_stopwatch_counts_decoding_from_the_step_that_started_the_last() -> None:
    now = iter((0.0, 1.0, 2.0, 3.0, 5.0))
    watch = Stopwatch([3, 2], clock=lambda: next(now))
    watch.step({0: 1})
    watch.step({0: 1, 1: 1})
    watch.step({0: 1})
    watch.step({1: 1})
    assert watch.round() == Round(5.0, 3.0, 2)


def test_a_stopwatch_that_missed_tokens_says_so() -> None:
    watch = Stopwatch([2])
    watch.step({0: 1})
    with pytest.raises(ValueError, match="too few"):
        watch.round()


def test_ratios_are_of_neighbours() -> None:
    match = _match((Round(1.0, 0.5, 95), Round(2.0, 1.0, 95)), (Round(2.0, 1.0, 95), Round(2.0, 2.0, 95)))
    assert match.ratios == (2.0, 1.0)
    assert match.decode_ratios == (2.0, 2.0)
    assert msgspec.convert(json.loads(json.dumps(asdict(match))), Match) == match


def test_shares_count_what_a_step_must_read() -> None:
    dense = Footprint(SHAPES["qwen3-0.6b"])
    assert dense.read_share(1) == 1.0  # tied: the table is the head
    place = dense.place(_match((Round(10.0, 95 / 40, 95),), ()), _ABOUT, (Round(10.0, 95 / 40, 95),), _CEILINGS)
    assert place is not None
    context = (128 + 48) * 2 * 28 * 8 * 128 * 2
    assert place.share == pytest.approx(40 * (600e6 + context) / 40e9)
    experts = Footprint(SHAPES["qwen3-moe"])
    assert experts.active == pytest.approx(175e6, rel=0.05)
    assert experts.read_share(1) < experts.read_share(8) < experts.read_share(32) < 1


@pytest.fixture
def small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the checkpoint `qwen3-0.6b` a small one."""
    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 5000}
    monkeypatch.setitem(SHAPES, "qwen3-0.6b", {**SHAPES["qwen3-0.6b"], **small})


@pytest.mark.usefixtures("small_shape")
def test_a_peer_whose_tool_cannot_convert_is_left_out_with_its_log(tmp_path: Path) -> None:
    tool = tmp_path / PEERS["openvino"].proof
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho no such operator >&2\nexit 3\n")
    tool.chmod(0o755)
    arguments = ["engine", "--model", "qwen3-0.6b", "--against", "openvino:int8", "--peers", str(tmp_path), "--prepare"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "openvino:int8 is not measured" in result.output
    assert "status 3" in result.output
    assert (tmp_path / "bench.log").read_text().endswith("no such operator\n")


@pytest.mark.usefixtures("small_shape")
def test_a_missing_peer_is_reported_with_its_commands(tmp_path: Path) -> None:
    arguments = ["engine", "--model", "qwen3-0.6b", "--against", ",".join(PEERS), "--peers", str(tmp_path), "--prepare"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for peer in PEERS.values():
        assert f"{peer.name}:" in result.output
        assert peer.install[-1].split()[0] in result.output
    formats = [bits for peer in PEERS.values() for bits in peer.formats.values() if bits >= 8]
    assert result.output.count("is not installed and not measured") == len(formats)


def test_bfloat16_needs_no_conversion_but_for_llama_cpp(tmp_path: Path) -> None:
    checkpoint, commands = tmp_path / "model", list[Sequence[object]]()
    checkpoint.mkdir()

    def run(command: Sequence[object]) -> None:
        commands.append(command)
        Path(str(command[-1])).touch()

    for entrant in entrants("vllm:bf16,transformers:bf16,llama.cpp:bf16", 8):
        entrant.prepare(checkpoint, tmp_path, run)
        file = entrant.command(checkpoint, tmp_path, 2)[3]
        assert file == (tmp_path / "model-bf16.gguf" if entrant.name == "llama.cpp:bf16" else checkpoint)
        assert Path(str(file)).exists()
    assert len(commands) == 1


def test_our_own_process_plays(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with EngineProcess(ours(tiny_checkpoint, "native", 1), tmp_path / "log") as process:
        assert process.about.version.startswith("headgate")
        assert process.about.weight_bytes > 0
        result = process.run([((11, 12, 13), 4), ((14, 15), 6)])
        assert result.total_s > 0
        assert result.decode_tokens <= 8


class FakeEntrant(Entrant):
    """A process that answers so many rounds and then ends; the words on its command line are the peer's."""

    def command(self, checkpoint: Path, peers: Path, threads: int) -> list[object]:  # noqa: ARG002
        """As `self.fmt` says."""
        return engine_of(int(self.fmt))


def engine_of(rounds: int) -> list[object]:
    """A command that answers so many rounds and then ends."""
    about = {"version": "x", "settings": "", "weight_bytes": 1, "kv_element_bytes": 2, "products": "int8"}
    program = (
        f"import json\nprint(json.dumps({about}), flush=True)\n"
        f"for _ in range({rounds}):\n  input()\n  print(json.dumps({{'total_s': 1.0}}), flush=True)"
    )
    return [sys.executable, "-c", program]


def played(theirs: int, mine: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Match]:
    """Two workloads of a round each, after one to warm up, by processes that answer so many rounds."""
    monkeypatch.setattr("headgate.bench.peers.match.ours", lambda *_: engine_of(mine))
    entrant = FakeEntrant(PEERS["transformers"], str(theirs))
    work = (Workload("first", ((5, 1),)), Workload("second", ((6, 1),)))
    return play("m", tmp_path, "native", [entrant], work, peers=tmp_path, threads=1, rounds=1, say=lambda _: None)


def test_a_peer_that_ends_loses_nothing_that_it_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = played(2, 99, tmp_path, monkeypatch)
    assert (first.workload, len(first.theirs), first.reason) == ("first", 1, "")
    assert (second.workload, second.theirs) == ("second", ())
    assert "ended without an answer" in second.reason or "is gone" in second.reason


def test_a_peer_that_is_gone_before_it_is_asked_has_failed(tmp_path: Path) -> None:
    deaf = [sys.executable, "-c", f"import os; os.close(0)\n{engine_of(0)[2]}"]

    def ask() -> None:
        with EngineProcess(deaf, tmp_path / "log") as peer:
            peer.run([((5,), 1)])

    with pytest.raises(EngineFailed, match="is gone"):
        ask()


def test_no_peer_is_blamed_for_our_own_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = played(99, 2, tmp_path, monkeypatch)
    assert next(found).reason == ""
    with pytest.raises(EngineFailed):
        next(found)


def test_settings_for_our_engine_do_not_reach_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    words = "os.environ.get('OMP_WAIT_POLICY', 'its own')"
    about = {"version": 0, "settings": "", "weight_bytes": 0, "kv_element_bytes": 2, "products": "int8"}
    command = [sys.executable, "-c", f"import json, os; print(json.dumps({about} | {{'version': {words}}}))"]
    with EngineProcess(command, tmp_path / "log") as peer:
        assert peer.about.version == "its own"
    with EngineProcess(command, tmp_path / "log", WAITING) as us:
        assert us.about.version == "passive"


def test_the_users_way_of_waiting_wins() -> None:
    ask = [sys.executable, "-c", "import headgate.gateway, os; print(os.environ['OMP_WAIT_POLICY'])"]
    plain = {name: value for name, value in os.environ.items() if name not in WAITING}
    assert subprocess.check_output(ask, env=plain, text=True) == "passive\n"
    assert subprocess.check_output(ask, env={**plain, "OMP_WAIT_POLICY": "active"}, text=True) == "active\n"


def test_the_roofline_is_a_picture(tmp_path: Path) -> None:
    plot([_match((Round(1.0, 0.5, 95),), (Round(2.0, 1.0, 95),))], _CEILINGS, tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
