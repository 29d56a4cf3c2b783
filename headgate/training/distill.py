"""Distils any teacher the engine reads into any student of its architectures: what `headgate distill` does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer as Backend
from torch.nn import functional as F

from headgate import __version__
from headgate.engine.device import open_device
from headgate.engine.errors import CheckpointError, lacks_memory
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.hub import locate
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.tensors import read_json
from headgate.engine.text.folder import TokenizerError
from headgate.training.batches import Encoded, bucketed, collate, stream
from headgate.training.conversations import DataError, Encoder, Rows, digest, load
from headgate.training.forward import fastest, products
from headgate.training.hidden import attach, detach
from headgate.training.loop import (
    CheckpointMismatchError,
    NonFiniteLossError,
    Report,
    TrainSettings,
    UnsavedStateError,
    train,
)
from headgate.training.losses import answer_logits, distillation_loss
from headgate.training.runs import Run, RunError, Settings
from headgate.training.students import (
    TOKENIZER_FILES,
    DistillError,
    HoldoutLoss,
    Job,
    Outcome,
    export,
    fast,
    fresh_student,
    import_transformers,
    load_teacher,
)

CHUNK = 4096
"""Rows that are sorted by length together; batches within are drawn from it."""
HOLDOUT = 1000
"""Rows of the holdout that losses are measured on, evenly spaced over it."""
WARMUP = 100


Progress = Callable[[int], AbstractContextManager[Report]]
"""Shows the progress of so many steps."""


def run(job: Job, *, say: Callable[[str], None], progress: Progress) -> Outcome:
    """Distils, or continues an interrupted run of the same settings, or returns what a finished one gave.

    Raises `DistillError` for anything that a user can put right; the last saved state is then intact.
    """
    try:
        plan = _plan(job)
        place = Run(job.out, _settings(job, plan))
        if (record := place.finished()) is not None:
            before, after = (HoldoutLoss(**record["holdout"][when]) for when in ("before", "after"))
            return Outcome(place.out, record["weights"], before, after, already=True)
        with place.open() as notes:
            try:
                return _train(job, plan, place, notes, say, progress)
            except KeyboardInterrupt:
                raise DistillError(f"interrupted; {_resume(place)}", 1) from None
            except (UnsavedStateError, SafetensorError) as error:
                what = (
                    str(error) if isinstance(error, UnsavedStateError) else f"{place.out}: cannot be written: {error}"
                )
                raise DistillError(f"{what}; {_resume(place)}", 1) from error
    except (DataError, TokenizerError, RunError) as error:
        raise DistillError(str(error)) from error
    except CheckpointMismatchError as error:
        raise DistillError(str(error), 1) from error
    except NonFiniteLossError as error:
        what = str(error).split(";")[0]
        raise DistillError(
            f"{what}; start again with a --rate below {job.rate} and another --out, or delete {place.folder}", 1
        ) from error
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise DistillError(f"out of memory on {plan.device}; lower --tokens ({job.tokens})", 1) from error


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the options of a job name, checked against each other. `config` is the student's config.json."""

    teacher: Path
    tokenizer: Path
    teacher_spec: DecoderSpec
    student_spec: DecoderSpec
    config: dict[str, Any]
    device: torch.device


def _plan(job: Job) -> _Plan:
    for name in ("rate", "temperature", "soft", "hidden"):
        if not math.isfinite(value := getattr(job, name)):
            raise DistillError(f"--{name} is {value}; a finite number is accepted")
    if not -(2**63) <= job.seed < 2**64:
        raise DistillError(f"--seed is {job.seed}; from -2^63 to 2^64 - 1 is accepted")
    if not job.out.resolve().name:
        raise DistillError(f"--out is {job.out}; a folder with a name is accepted")
    if job.tokens < 8 or job.tokens % 8:
        raise DistillError(f"--tokens is {job.tokens}; a multiple of 8 is accepted")
    if job.split == job.holdout:
        raise DistillError(f"--holdout is {job.holdout!r}, as --split is; the holdout must not be trained on")
    teacher = _located("--teacher", job.teacher)
    tokenizer = _located("--tokenizer", job.tokenizer, weights=False) if job.tokenizer else teacher
    teacher_spec, _ = _spec("--teacher", teacher / "config.json")
    given = job.student_config
    student_spec, config = _spec("--student-config", given / "config.json" if given.is_dir() else given)
    _check_vocabulary(job, teacher_spec, student_spec, tokenizer)
    return _Plan(teacher, tokenizer, teacher_spec, student_spec, config, _device(job.device))


def _train(
    job: Job, plan: _Plan, place: Run, notes: dict[str, Any], say: Callable[[str], None], progress: Progress
) -> Outcome:
    step = place.saved_step()
    encoder = Encoder(plan.tokenizer)
    limits = {
        "--tokens": job.tokens,
        "the teacher's context": plan.teacher_spec.context_length,
        "the student's context": plan.student_spec.context_length,
    }
    rows = load(job.data, (job.split, job.holdout), encoder, limits)
    trained, held = rows[job.split], rows[job.holdout]
    say(
        f"{len(trained)} conversations with {trained.answers} answer tokens to learn, "
        f"{len(held)} with {held.answers} held out"
    )
    transformers = import_transformers()
    teacher = load_teacher(transformers, job, plan.teacher, plan.teacher_spec).to(plan.device)
    teacher = fast(teacher if fastest(plan.device) is torch.bfloat16 else teacher.float(), job)
    student = fast(fresh_student(transformers, job, plan.config).to(plan.device), job)
    weights = sum(weight.numel() for weight in student.parameters())
    say(f"student: {plan.student_spec.architecture}, {weights / 1e6:.2f} million weights, on {plan.device.type}")
    if "before" not in notes:
        notes["before"] = asdict(holdout_loss(teacher, student, held, job.tokens))
        place.note(notes)
    before = HoldoutLoss(**notes["before"])
    say(f"holdout before: {described(before)}")
    if step:
        say(f"continues after step {step}")
    batches = stream(chunks(trained, job.seed), pad=0, tokens=job.tokens, seed=job.seed)
    # A mixture of experts also keeps its experts balanced, by its own coefficient.
    balance = student.config.router_aux_loss_coef if plan.student_spec.experts else None
    loss = distillation_loss(teacher, temperature=job.temperature, soft=job.soft, hidden=job.hidden, balance=balance)
    settings = TrainSettings(job.steps, rate=job.rate, warmup=min(WARMUP, job.steps // 10), save_every=job.save_every)
    if job.hidden:
        attach(student, teacher)
    with progress(job.steps) as report:
        train(student, batches, loss, settings, place.state, report=report)
    detach(student)
    after = holdout_loss(teacher, student, held, job.tokens)
    outcome = Outcome(place.out, weights, before, after)
    place.publish(
        lambda folder: export(job, student, (plan.teacher, plan.tokenizer), encoder.eos_ids, folder, outcome),
        {"headgate": __version__, "weights": weights, "holdout": {"before": asdict(before), "after": asdict(after)}},
    )
    return outcome


def _resume(place: Run) -> str:
    step = place.saved_step()
    saved = f"the state of step {step} is in {place.state}" if step else "no state was saved yet"
    return f"{saved}; the same command {'continues from it' if step else 'starts again'}"


def described(loss: HoldoutLoss) -> str:
    """The losses as a phrase."""
    return f"KL to the teacher {loss.divergence:.4f}, cross-entropy {loss.cross_entropy:.4f} nats a token"


def chunks(rows: Rows, seed: int) -> Callable[[int], Sequence[Encoded]]:
    """Numbered chunks of the rows: every pass over them in another order, which depends only on `seed`."""
    parts = math.ceil(len(rows) / CHUNK)

    @lru_cache(maxsize=1)
    def order(turn: int) -> list[int]:
        numbers = list(range(len(rows)))
        random.Random(f"{seed}/{turn}").shuffle(numbers)
        return numbers

    def chunk(number: int) -> Sequence[Encoded]:
        turn, part = divmod(number, parts)
        return [rows[row] for row in order(turn)[part::parts]]

    return chunk


@torch.no_grad()
def holdout_loss(teacher: Any, student: Any, rows: Rows, tokens: int) -> HoldoutLoss:
    """Losses at temperature 1 on at most `HOLDOUT` rows, in batches of `tokens`; under autocast, as in training."""
    count = min(len(rows), HOLDOUT)
    chosen = [rows[index * len(rows) // count] for index in range(count)]
    device = next(student.parameters()).device
    student.eval()
    divergence = cross_entropy = 0.0
    answers = 0
    for length, members in bucketed(chosen, tokens, random.Random(0)):
        batch = collate([chosen[row] for row in members], 0, length, tokens // length).to(device)
        # Uncompiled: compiling the passes without gradients takes longer than running them.
        with products(device), torch.compiler.set_stance("force_eager"):
            given, wanted = answer_logits(student, batch), answer_logits(teacher, batch)
        logs = F.log_softmax(given, -1)
        divergence += F.kl_div(logs, F.log_softmax(wanted, -1), reduction="sum", log_target=True).item()
        cross_entropy += F.nll_loss(logs, batch.targets, reduction="sum").item()
        answers += len(batch.targets)
    return HoldoutLoss(divergence / answers, cross_entropy / answers)


def _located(option: str, source: str, *, weights: bool = True) -> Path:
    try:
        folder = locate(source, weights=weights)
    except CheckpointError as error:
        raise DistillError(f"{option} {error}") from error
    if weights and any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors")):
        raise DistillError(f"{option} {source}: a GGUF file is served, not trained from; name a folder of safetensors")
    return folder


def _spec(option: str, path: Path) -> tuple[DecoderSpec, dict[str, Any]]:
    try:
        config = read_json(path)
        spec = read_spec(config)
    except CheckpointError as error:
        # The specification's reader knows no path, only that it reads a config.json.
        reason = str(error).removeprefix(f"{path}: ").removeprefix("config.json: ")
        raise DistillError(f"{option} {path}: {reason}") from error
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise DistillError(f"{option} {path}: a value has the wrong type: {error}") from error
    if config.get("text_config"):
        raise DistillError(f"{option} {path}: {spec.architecture} sees; only models of text alone can be distilled")
    return spec, config


def _check_vocabulary(job: Job, teacher: DecoderSpec, student: DecoderSpec, tokenizer: Path) -> None:
    if teacher.vocab_size != student.vocab_size:
        raise DistillError(
            f"--student-config {job.student_config}: vocab_size is {student.vocab_size}, the teacher's is "
            f"{teacher.vocab_size}; distillation compares them token by token, so {teacher.vocab_size} is accepted"
        )
    path = tokenizer / "tokenizer.json"
    if not path.is_file():
        raise DistillError(f"--tokenizer {path}: the file is missing; slow tokenizers are not read")
    try:
        highest = max(Backend.from_file(str(path)).get_vocab(with_added_tokens=True).values(), default=0)
    except Exception as error:  # the library raises plain Exception
        raise DistillError(f"--tokenizer {path}: not a tokenizer: {error}") from error
    if highest >= teacher.vocab_size:
        raise DistillError(
            f"--tokenizer {path}: has token id {highest}, the teacher's vocab_size is {teacher.vocab_size}; "
            "name the tokenizer that the teacher was trained with"
        )


def _device(name: str) -> torch.device:
    try:
        return open_device(name)
    except ValueError as error:
        raise DistillError(f"--{error}") from None


def _settings(job: Job, plan: _Plan) -> Settings:
    """What decides the result. Device, threads and the like do not: a run may continue on another machine."""
    weights = [*sorted(plan.teacher.glob("*.safetensors")), plan.teacher / "config.json"]
    return {
        "teacher": _fingerprint(weights),
        "tokenizer": _fingerprint([plan.tokenizer / name for name in TOKENIZER_FILES]),
        "student-config": "sha256:" + sha256(json.dumps(plan.config, sort_keys=True).encode()).hexdigest(),
        "data": "sha256:" + digest(job.data, (job.split, job.holdout)),
        **{name: getattr(job, name) for name in ("split", "holdout", "steps", "tokens", "rate")},
        **{name: getattr(job, name) for name in ("temperature", "soft", "hidden", "seed")},
    }


def _fingerprint(paths: Sequence[Path]) -> str:
    """Of sizes, and of the first, middle and last megabyte: whole checkpoints would take minutes to read."""
    total, sample = sha256(), 1 << 20
    for path in paths:
        if path.is_file():
            size = path.stat().st_size
            total.update(f"{path.name}:{size}".encode())
            with path.open("rb") as file:
                for start in (0, max(0, size // 2 - sample // 2), max(0, size - sample)):
                    file.seek(start)
                    total.update(file.read(sample))
    return "sha256:" + total.hexdigest()
