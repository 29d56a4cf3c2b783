"""The models of a distillation: the teacher as it is served, the fresh student, and the student's finished folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headgate import __version__
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.loader import computed_in
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.quantization import STATED_IN
from headgate.engine.models.weights.quantized import expanded
from headgate.engine.models.weights.tensors import read_json
from headgate.training.forward import prepare
from headgate.training.runs import write_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


class DistillError(RuntimeError):
    """The distillation cannot start (`exit_code` 2) or broke off (1). The message says why, and what to do."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Job:
    """What to distil, as on the command line: lengths in tokens, `device` one of auto, cpu and cuda."""

    teacher: str
    student_config: Path
    data: Path
    out: Path
    tokenizer: str | None = None
    split: str = "train"
    holdout: str = "calibration"
    steps: int = 1000
    tokens: int = 2048
    rate: float = 1e-3
    temperature: float = 1.0
    soft: float = 0.5
    hidden: float = 4.0
    seed: int = 0
    device: str = "auto"
    threads: int | None = None
    save_every: int = 100
    compiled: bool = True


@dataclass(frozen=True, slots=True)
class HoldoutLoss:
    """Means over answer tokens, in nats: KL(teacher || student), and cross-entropy of the data's answers."""

    divergence: float
    cross_entropy: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished distillation; `already` if it was finished before this call."""

    out: Path
    weights: int
    before: HoldoutLoss
    after: HoldoutLoss
    already: bool = False


def import_transformers() -> Any:
    """The library, quiet. Raises `DistillError` naming the extra that installs it."""
    try:
        import transformers
    except ImportError as error:
        raise DistillError(
            "training needs transformers, which is not installed: pip install 'headgate[train]'"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def load_teacher(transformers: Any, job: Job, folder: Path, spec: DecoderSpec) -> Any:
    """The teacher in the precision that the engine serves it in. Raises `DistillError` if weights are missing."""
    config = read_json(folder / "config.json")
    dtype = computed_in(config, "auto")
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True, "output_loading_info": True}
    try:
        architecture = getattr(transformers, spec.architecture)
        if any(config.get(key) for key in STATED_IN):
            # Only with further packages does transformers read such weights, each format with its own.
            given = architecture.config_class.from_dict(_plain(config))
            model, report = architecture.from_pretrained(
                None, config=given, state_dict=expanded(folder, dtype), **options
            )
        else:
            model, report = architecture.from_pretrained(folder, **options)
    except Exception as error:  # damaged files raise whatever their readers raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistillError(f"--teacher {job.teacher}: cannot be loaded: {reason}") from error
    for what in ("missing_keys", "mismatched_keys"):
        # transformers fills such weights with random numbers and goes on.
        if names := sorted(str(name) for name in report.get(what) or ()):
            raise DistillError(f"--teacher {job.teacher}: {what.replace('_', ' ')}: {names[0]} ({len(names)} in all)")
    return model


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """Without what it says of quantized weights."""
    return {key: value for key, value in config.items() if key not in STATED_IN}


def fresh_student(transformers: Any, job: Job, values: dict[str, Any]) -> Any:
    """A fresh student in fp32, the same for the same seed. Raises `DistillError` if the configuration is no good."""
    try:
        name = values["architectures"][0]
        # A configuration of a quantized checkpoint says of its weights what is not true of the student's.
        config = getattr(transformers, name).config_class.from_dict(_plain(values))
        # An embedding that is told of a padding token never learns it, and often that is the end of a turn.
        config.pad_token_id = None
        torch.manual_seed(job.seed)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # a configuration can be wrong in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistillError(f"--student-config {job.student_config}: transformers refuses it: {reason}") from error


def fast(model: Any, job: Job) -> Any:
    """Switches the model, in place, to the fastest forward pass that computes what its architecture means."""
    windows = read_spec(model.config.to_dict()).windows
    model = prepare(model, compiled=job.compiled)
    if any(window is not None and window < job.tokens for window in windows):
        # The fast attention knows no sliding windows.
        model.set_attn_implementation("sdpa")
    return model


def export(
    job: Job,
    student: Any,
    sources: tuple[Path, Path],
    eos_ids: tuple[int, ...],
    folder: Path,
    outcome: Outcome,
) -> None:
    """Fills `folder` with a bf16 checkpoint that `transformers` and the engine load.

    `sources` are the folders of the teacher and of the tokenizer; `eos_ids` are the tokens that end an answer.
    """
    from transformers import AutoModelForCausalLM

    teacher, tokenizer = sources
    theirs = read_json(teacher / "config.json")
    copy = AutoModelForCausalLM.from_config(student.config, dtype=torch.bfloat16)
    copy.load_state_dict(student.state_dict())
    for name in ("bos_token_id", "pad_token_id"):
        setattr(copy.config, name, theirs.get(name))
    copy.config.eos_token_id = list(eos_ids) if len(eos_ids) > 1 else next(iter(eos_ids), None)
    copy.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        weights.chmod((folder / "config.json").stat().st_mode)  # safetensors writes them for the owner alone
    generation = tokenizer / "generation_config.json"
    own = read_json(generation) if generation.is_file() else {}
    own.pop("transformers_version", None)
    write_json(folder / "generation_config.json", {**own, "eos_token_id": list(eos_ids)})
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)
    (folder / "README.md").write_text(_card(job, student, outcome), encoding="utf-8")


def _card(job: Job, student: Any, outcome: Outcome) -> str:
    before, after = outcome.before, outcome.after
    return f"""\
---
library_name: transformers
pipeline_tag: text-generation
---
# {outcome.out.name}

{student.config.architectures[0]}, {outcome.weights / 1e6:.2f} million weights in bf16, distilled from
`{job.teacher}` with `headgate distill` {__version__}.

- Data: `{job.data}`, split {job.split}; the losses below are on split {job.holdout}.
- Training: {job.steps} steps of {job.tokens} tokens (padding included), highest rate {job.rate:g}, seed {job.seed}.
- Loss: {job.soft:g} * T^2 * KL(teacher || student) with T = {job.temperature:g}, plus {1 - job.soft:g} * cross-entropy
  (Hinton et al. 2015), on answer tokens; {job.hidden:g} falling to 0 * difference of hidden states at all tokens.

| holdout, nats per answer token | before | after |
|---|---:|---:|
| KL to the teacher | {before.divergence:.4f} | {after.divergence:.4f} |
| cross-entropy | {before.cross_entropy:.4f} | {after.cross_entropy:.4f} |
"""
