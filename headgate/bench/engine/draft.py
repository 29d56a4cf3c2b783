"""`headgate bench draft`: how much sooner answers are there that were drafted, and what wrong drafts cost."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click
import torch
from rich.console import Console

from headgate.bench import ceilings as limits
from headgate.bench.checkpoints import model_folder
from headgate.bench.engine.draft_pair import write_pair
from headgate.bench.engine.speed import EngineBench, Timing, Tokens
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.options import at_once, model_option, weights_option
from headgate.engine.engine import Engine
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import ModelSpec

_PROMPT = 32
_CHANGED = 0.1


@click.command()
@model_option("qwen3-0.6b")
@weights_option("int8")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Answers at the same time.")
@click.option("--new", type=click.IntRange(min=2), default=128, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of all drafts, by turns.")
@click.option("--small", is_flag=True, help="Have a small model draft, of a synthetic pair, instead; without --model.")
def draft(model: str, weights: WeightFormat, batch: int, new: int, rounds: int, *, small: bool) -> None:
    """Generate the same answers without a draft, with themselves, with a tenth changed, and with noise as their draft.

    Greedy, random prompts, no cache hits. The share is of what the machine can read, were the weights and the context
    read once for each token, as they are without a draft.
    """
    console = Console(width=140)
    if small:
        _by_small(weights, batch, new, rounds, console)
        return
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(at_once(batch))
        engine.load(ModelSpec("bench", model_folder(model, Path(scratch)), weights=weights))
        measured = limits.measure(engine.device)
        engine.start()
        try:
            info = engine.models["bench"].info
            runner, known = EngineBench(engine, "bench"), min(info.vocab_size, 3000)
            asked = list(Prompts(known).fill(Workload("draft", ((_PROMPT, new),) * batch)))
            own = runner.time(asked).answers
            drafts = _drafts(own, known)
            ran: dict[str, list[Timing]] = {name: [] for name in drafts}
            for _ in range(rounds):
                for name, given in drafts.items():
                    ran[name].append(runner.time(asked, drafts=given))
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
        finally:
            engine.stop()
    console.print(f"{model}, {info.dtype}, weights {weights}: {batch} at a time, {new} tokens each")
    each = info.weight_bytes_read(batch) / batch + (_PROMPT + new / 2) * info.kv_bytes_per_token
    plain = statistics.median(_rate(one) for one in ran["none"])
    for name, times in ran.items():
        rates = [_rate(one) for one in times]
        rate, last = statistics.median(rates), times[-1]
        same = "the same answers" if all(one.answers == own for one in times) else "OTHER ANSWERS"
        console.print(
            f"  {name:13} {rate:8,.1f} tokens/s ({min(rates):,.1f} to {max(rates):,.1f}), {rate / plain:5.2f} times, "
            f"{rate * each / measured.read_bytes_s:4.0%}; {last.accepted} accepted, {last.rejected} rejected; {same}"
        )
    console.print(
        f"{measured.device}, {measured.threads} threads: {measured.read_bytes_s / 1e9:.1f} GB/s read; "
        f"torch {torch.__version__}, {date.today()}"
    )


def _by_small(weights: WeightFormat, batch: int, new: int, rounds: int, console: Console) -> None:
    """Without a drafter and with one, by turns."""
    ran: dict[str, list[Timing]] = {"none": [], "small": []}
    with tempfile.TemporaryDirectory() as scratch:
        large, small = write_pair(Path(scratch))
        engine = Engine(at_once(batch))
        engine.load(
            ModelSpec("none", large, weights=weights),
            ModelSpec("drafts", small, weights=weights),
            ModelSpec("small", large, weights=weights, drafter="drafts"),
        )
        engine.start()
        try:
            runners = {name: EngineBench(engine, name) for name in ran}
            asked = list(Prompts(3000).fill(Workload("draft", ((_PROMPT, new),) * batch)))
            for runner in runners.values():
                runner.time(asked)
            for _ in range(rounds):
                for name, runner in runners.items():
                    ran[name].append(runner.time(asked))
            right, wrong = engine.models["small"].stats().guessed.get("model", (0, 0))
        finally:
            engine.stop()
    console.print(
        f"synthetic pair of 28 layers and their first 4, weights {weights}: {batch} at a time, {new} tokens each"
    )
    plain = statistics.median(_rate(one) for one in ran["none"])
    own = ran["none"][0].answers
    for name, times in ran.items():
        rates = [_rate(one) for one in times]
        same = "the same answers" if all(one.answers == own for one in times) else "OTHER ANSWERS"
        rate = statistics.median(rates)
        console.print(
            f"  {name:13} {rate:8,.1f} tokens/s ({min(rates):,.1f} to {max(rates):,.1f}), {rate / plain:5.2f} times; "
            f"{same}"
        )
    console.print(f"{right} of {right + wrong} proposed tokens were right; torch {torch.__version__}, {date.today()}")


def _drafts(answers: Sequence[Tokens], vocabulary: int) -> dict[str, list[Tokens]]:
    draw = random.Random(0)

    def changed(answer: Tokens, share: float) -> Tokens:
        return tuple(draw.randrange(10, vocabulary) if draw.random() < share else token for token in answer)

    return {
        "none": [()] * len(answers),
        "itself": list(answers),
        "a tenth other": [changed(answer, _CHANGED) for answer in answers],
        "noise": [changed(answer, 1.0) for answer in answers],
    }


def _rate(timing: Timing) -> float:
    return timing.decode_tokens / timing.decode_s
