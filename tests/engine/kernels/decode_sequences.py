"""Sequences that tests decode with a runner of their own, in one native call or step by step."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.tables import KVTables
from headgate.engine.models.decoder import Decoder, DecoderWeights
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.request import Request
from headgate.engine.runner import Runner
from headgate.engine.sampling.grammar import Grammar
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

BLOCK, BLOCKS = 4, 400

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 200]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.none() | st.integers(-(2**70), 2**70),
)


class Sequences:
    """Sequences of one runner, their prompts read."""

    def __init__(
        self,
        decoder: Decoder,
        params: list[SamplingParams],
        grammars: list[Grammar | None] | None = None,
        prompt: tuple[int, ...] | None = None,
    ) -> None:
        """`prompt`: of all of them; None: each has one that means nothing."""
        spec = decoder.spec
        self.tables = KVTables(BLOCKS, BLOCK, b"key", prefix_cache=False)
        self.store = KVStore(spec, BLOCKS, BLOCK, decoder.dtype, torch.device("cpu"))
        self.runner = Runner(decoder, self.store)
        self.interrupt = Interrupt()
        self.sequences = []
        for number, (sampling, grammar) in enumerate(zip(params, grammars or [None] * len(params), strict=True)):
            own = prompt or tuple((7 * number + i * i) % spec.vocab_size for i in range(2 + 3 * number))
            sequence = Sequence(
                request=Request(f"r{number}", "m", own, sampling),
                choice=number % 2,
                arrival=number,
                tokens=list(own),
                limit=500,
                ends=frozenset(sampling.stop_token_ids),
                table=self.tables.table(""),
                noise=number - 2,
                guide=None if grammar is None else grammar.guide(len(own)),
            )
            self.tables.extend(sequence.table, 120)
            self.sequences.append(sequence)
        self.take([Chunk(s, 0, len(s.tokens)) for s in self.sequences], 1)

    def take(self, chunks: list[Chunk], most: int) -> int:
        """One call; how many tokens each sequence got."""
        results = self.runner.run(chunks, most, self.interrupt, repeats=self.runner.repeats(chunks))
        for result in results:
            assert isinstance(result, Sampled)
            result.sequence.tokens.extend(result.tokens)
        counts = {len(r.tokens) for r in results if isinstance(r, Sampled)}
        assert len(counts) == 1
        return counts.pop()

    def decode(self, most: int) -> int:
        return self.take([Chunk(s, len(s.tokens) - 1, 1) for s in self.sequences], most)

    def outputs(self) -> list[list[int]]:
        return [s.tokens[s.prompt_length :] for s in self.sequences]


class OneByOne(CpuKernels):
    """The same operators, without the step."""

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None
