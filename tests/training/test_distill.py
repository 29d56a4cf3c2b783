"""`headgate distill` end to end on tiny random checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distilling import Distil, conversation, refused
from fp8_checkpoints import BLOCKS
from safetensors import SafetensorError
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import load_decoder
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer
from headgate.training import command
from headgate.training.conversations import Rows
from headgate.training.distill import chunks

TURN_END = 2


def engine_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    decoder = load_decoder(folder, choose_kernels("reference", torch.device("cpu")).kernels, dtype="float32").decoder
    store = KVStore(decoder.spec, 1, 64, torch.float32, torch.device("cpu"))
    places = torch.arange(len(tokens))
    batch = AttentionBatch(counts=[len(tokens)], contexts=[len(tokens)], tables=[[0]], slots=places, block_size=64)
    with torch.inference_mode():
        return decoder.forward(torch.tensor(tokens), places, batch, store.layers, places)


@pytest.mark.parametrize(
    ("teacher", "student"),
    [("qwen3-moe", "llama3"), ("mistral", "qwen3"), ("olmoe", "qwen2-moe"), ("mixtral", "mistral"), ("gemma3", "phi3")],
)
def test_result_is_the_same_model_to_transformers_and_to_the_engine(
    teacher: str, student: str, place: Path, distil: Distil, make_checkpoint: MakeCheckpoint
) -> None:
    folder = place / "other"
    shutil.copytree(make_checkpoint(teacher), folder)
    write_tokenizer(folder)
    result = distil(teacher=folder, student_config=make_checkpoint(student))
    assert result.exit_code == 0, result.output
    tokens = torch.randint(0, 320, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    model = transformers.AutoModelForCausalLM.from_pretrained(place / "out", dtype=torch.float32)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(engine_logits(place / "out", tokens), expected, atol=1e-4, rtol=0)


def test_folder_has_all_that_serving_needs(place: Path, distil: Distil) -> None:
    assert distil().exit_code == 0
    out = place / "out"
    assert sorted(path.name for path in place.iterdir()) == ["data.jsonl", "out", "student.json", "teacher"]
    messages = [{"role": "user", "content": "say 3"}]
    assert ChatTemplate.load(out).render(messages) == ChatTemplate.load(place / "teacher").render(messages)
    assert Tokenizer.load(out).eos_ids == (TURN_END,)
    config = json.loads((out / "config.json").read_text())
    assert (config["dtype"], config["eos_token_id"], config["pad_token_id"]) == ("bfloat16", TURN_END, None)
    modes = {path.stat().st_mode for path in out.iterdir() if path.suffix in (".json", ".safetensors")}
    assert len(modes) == 1
    card = (out / "README.md").read_text()
    for part in ("LlamaForCausalLM", "4 steps of 128 tokens", "KL to the teacher", "data.jsonl"):
        assert part in card


def losses(text: str) -> tuple[float, float]:
    """Divergence and cross-entropy in a line of the summary."""
    words = text.replace(",", "").split()
    return float(words[words.index("teacher") + 1]), float(words[words.index("cross-entropy") + 1])


def test_holdout_losses_fall(place: Path, distil: Distil) -> None:
    result = distil(steps=40, rate=0.01, soft=0.3)
    before, after = (losses(line) for line in result.output.splitlines()[-3:-1])
    assert after[1] < 0.5 * before[1]
    # Only the teacher teaches: the student comes closer to it, though its answers are not the data's.
    result = distil(steps=40, rate=0.01, soft=1.0, out=place / "soft")
    before, after = (losses(line) for line in result.output.splitlines()[-3:-1])
    assert after[0] < 0.5 * before[0]


@contextmanager
def broken_off_at(step: int, total: int) -> Iterator[Any]:
    def report(done: int, _loss: float, _speed: float) -> None:
        if done == step:
            raise KeyboardInterrupt

    assert total > step
    yield report


def test_interrupted_and_continued_is_the_same_bit_for_bit(
    place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert distil(steps=7, out=place / "whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(command, "progress", lambda _name, steps: broken_off_at(5, steps))
        interrupted = distil(steps=7, save_every=2)
    refused(
        interrupted, "interrupted", "state of step 4", "out.training/state.pt", "the same command continues", code=1
    )
    assert not (place / "out").exists()
    # What a killed process left half written goes away.
    (place / ".out.1.tmp").mkdir()
    (place / "out.training" / ".state.pt.1.tmp").write_bytes(b"half")

    refused(distil(steps=8), "out.training is a run with other settings", "--steps is 8, there 7")
    continued = distil(steps=7, save_every=2)
    assert continued.exit_code == 0
    assert "continues after step 4" in continued.output
    weights = [(place / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]
    assert not (place / ".out.1.tmp").exists()
    assert not (place / "out.training").exists()


@pytest.mark.parametrize(("family", "noise"), [("mistral", "attention_dropout"), ("mixtral", "router_jitter_noise")])
def test_a_student_that_draws_noise_continues_with_the_same(
    family: str,
    noise: str,
    place: Path,
    distil: Distil,
    make_checkpoint: MakeCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = json.loads((make_checkpoint(family) / "config.json").read_text())
    noisy = place / "noisy.json"
    noisy.write_text(json.dumps({**config, noise: 0.3}))
    assert distil(student_config=noisy, steps=5, out=place / "whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(command, "progress", lambda _name, steps: broken_off_at(3, steps))
        distil(student_config=noisy, steps=5, save_every=2)
    assert "continues after step 2" in distil(student_config=noisy, steps=5, save_every=2).output
    weights = [(place / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]


def test_models_that_see_are_refused(place: Path, distil: Distil, make_checkpoint: MakeCheckpoint) -> None:
    folder = place / "seeing"
    shutil.copytree(make_checkpoint("gemma3-seeing"), folder)
    write_tokenizer(folder)
    refused(distil(teacher=folder), "--teacher", "Gemma3ForConditionalGeneration sees; only models of text alone")


def test_interrupted_before_the_first_state(place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "progress", lambda _name, steps: broken_off_at(1, steps))
    refused(distil(), "interrupted", "no state was saved yet", "the same command starts again", code=1)
    assert not (place / "out").exists()


def test_finished_run_does_nothing_unless_settings_differ(place: Path, distil: Distil) -> None:
    assert distil(steps=1).exit_code == 0
    stamp = (place / "out" / "model.safetensors").stat().st_mtime_ns
    again = distil(steps=1, save_every=7)
    assert again.exit_code == 0
    assert "finished already" in again.output
    assert (place / "out" / "model.safetensors").stat().st_mtime_ns == stamp
    refused(distil(steps=2, rate=0.5), "is finished with other settings", "--steps is 2, there 1", "--rate is 0.5")
    with (place / "data.jsonl").open("a") as file:
        file.write(json.dumps(conversation(0, "train")) + "\n")
    refused(distil(steps=1), "--data has other contents")


def test_result_is_never_half_there(place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.training import students

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device", "README.md")

    with monkeypatch.context() as patch:
        patch.setattr(students, "_card", full)
        refused(distil(steps=1), "README.md: No space left on device", code=1)
    assert sorted(path.name for path in place.glob("*out*")) == ["out.training"]
    assert distil(steps=1).exit_code == 0


def test_a_state_that_cannot_be_written_breaks_the_run_off_and_leaves_the_one_before(
    place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, calls = torch.save, 0

    def full(state: object, path: Path) -> None:
        nonlocal calls
        calls += 1
        save(state, path)
        if calls == 2:
            path.write_bytes(b"half")
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 970496 vs 970384")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        broken = distil(save_every=1)
    refused(broken, "state.pt: cannot be written; is the disk full?", "the state of step 1 is in", code=1)
    assert sorted(path.name for path in (place / "out.training").iterdir()) == ["lock", "run.json", "state.pt"]
    assert "continues after step 1" in distil(save_every=1).output


def test_weights_that_cannot_be_written_leave_the_last_state(
    place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(transformers.PreTrainedModel, "save_pretrained", full)
        refused(distil(steps=1), "out: cannot be written", "No space left on device", "the state of step 1", code=1)
    assert sorted(path.name for path in place.glob("*out*")) == ["out.training"]
    assert distil(steps=1).exit_code == 0


def test_memory_of_a_cpu_that_does_not_do(distil: Distil, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes.")

    monkeypatch.setattr("headgate.training.distill.holdout_loss", short)
    refused(distil(), "out of memory on cpu; lower --tokens (128)", code=1)


def test_damaged_state(place: Path, distil: Distil, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(command, "progress", lambda _name, steps: broken_off_at(2, steps))
        distil(save_every=1)
    (place / "out.training" / "state.pt").write_bytes(b"not a state")
    refused(distil(), "state.pt: damaged", "delete", "to start afresh")


def test_a_students_config_of_an_fp8_checkpoint_does_not_make_the_result_one(place: Path, distil: Distil) -> None:
    config = json.loads((place / "student.json").read_text())
    (place / "fp8.json").write_text(json.dumps({**config, "quantization_config": BLOCKS}))
    assert distil(student_config=place / "fp8.json", steps=1).exit_code == 0
    assert "quantization_config" not in json.loads((place / "out" / "config.json").read_text())


def test_every_pass_has_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.training.distill.CHUNK", 4)
    rows = Rows()
    for number in range(10):
        rows.append(([number, 1], [False, True]))
    rows.append(([99], [True]))  # nothing precedes its only token, so it cannot be learned
    chunk = chunks(rows, seed=3)
    passes = [[ids[0] for part in range(3) for ids, _ in chunk(3 * turn + part)] for turn in range(2)]
    assert [sorted(numbers) for numbers in passes] == [list(range(10))] * 2
    assert passes[0] != passes[1]
    assert chunk(1) == chunks(rows, seed=3)(1)
