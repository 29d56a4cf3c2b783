"""transformers' `generate` on a static batch. Arguments: checkpoint folder, format, threads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from headgate.bench.peers.protocol import About, Prompts, Refused, Round, Stopwatch, serve


class _Arrivals(transformers.generation.StoppingCriteria):  # type: ignore[misc]
    """Called after every step: a token for every row."""

    def __init__(self, watch: Stopwatch, rows: int) -> None:
        self._watch = watch
        self._rows = rows

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
        """Note the step; never stop."""
        self._watch.step(dict.fromkeys(range(self._rows), 1))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def main(folder: Path, fmt: str, threads: int) -> None:
    """Load, then answer rounds."""
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config = transformers.GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)
    about = About(
        f"transformers {transformers.__version__}, torch {torch.__version__}",
        f"generate, {fmt}, {threads} threads, sdpa attention, static batch",
        sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        2.0,
        "bfloat16",
    )

    def run(prompts: Prompts) -> Round:
        lengths = {(len(prompt), new) for prompt, new in prompts}
        if len(lengths) > 1:
            raise Refused("generate takes a static batch of equal lengths only")
        ids = torch.tensor([list(prompt) for prompt, _ in prompts])
        new = prompts[0][1]
        watch = Stopwatch([new] * len(prompts))
        arrivals = transformers.generation.StoppingCriteriaList([_Arrivals(watch, len(prompts))])
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, stopping_criteria=arrivals)
        return watch.round()

    serve(about, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
