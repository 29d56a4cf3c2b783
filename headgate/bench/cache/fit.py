"""Fits the comparator and the model on the training split and on groups of questions that nobody generated."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from headgate.bench.cache.certify import LADDER
from headgate.bench.cache.comparator_net import Net, Padded, fit, log_odds
from headgate.bench.cache.edits import edit_types, edited
from headgate.bench.cache.hit_fit import fit_model
from headgate.bench.cache.intents import Share
from headgate.bench.cache.streams import noisy
from headgate.bench.cache.wording import Question, draw_wording, join, pieces
from headgate.bench.cache.written import Group
from headgate.cache.bound import HitModel
from headgate.cache.embedding.comparator import MAX_TOKENS, Comparator
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.guards import compare, reading_of
from headgate.cache.judge import LEVELS, Judge, evidence
from headgate.cache.semantic import SemanticRule

Pairs = NDArray[np.int64]
Right = NDArray[np.bool_]

MEMBERS = 3
"""Networks of a comparator. Each is fitted to pairs of its own, and they err differently."""
_FOLDS = 5
_UNSEEN = 24_000
"""Pairs that the model above is fitted on."""
_FLOOR = 0.02
"""Share of the right pairs that may lie below the comparator's floor."""
_NEAR_PASS = 1.5
WRITTEN = "written/"
"""What the names of intents of written groups begin with."""
_WORDINGS = 4
_EDITS = 4
_NOISE = 0.2
# Shares of the drawn pairs: paraphrases, one edit apart, same intent otherwise; the rest has nothing in common.
_PARAPHRASES, _EDITED, _SAME_INTENT = 0.42, 0.40, 0.12


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the corpus: its key, intent, the group of a question and its edits, and whether it words an edit."""

    text: str
    key: str
    intent: str
    group: int
    edit: bool


def corpus(share: Share, questions: int, seed: int) -> list[Text]:
    """For every intent some questions in four wordings, and up to four edits of each in three."""
    rng = random.Random(f"{seed}/{share.split}/corpus")
    made: list[Text] = []
    group = 0
    for intent in share.intents:
        for _ in range(questions):
            question = share.draw(intent, rng)
            wordings = [draw_wording(intent, rng) for _ in range(_WORDINGS)]
            members: list[Question] = [question]
            for kind in rng.sample(edit_types(intent), min(_EDITS, len(edit_types(intent)))):
                other = edited(question, kind, share, rng)
                if other is not None and all(other.key != known.key for known in members):
                    members.append(other)
            for at, member in enumerate(members):
                own = wordings if at == 0 else [rng.choice(wordings), *(draw_wording(intent, rng) for _ in range(2))]
                for wording in own:
                    parts = pieces(member, wording)
                    text = noisy(parts, rng) if rng.random() < _NOISE else join(parts)
                    made.append(Text(text, member.key, intent.name, group, at > 0))
            group += 1
    return made


def of_groups(groups: Sequence[Group], first: int) -> list[Text]:
    """The texts of written groups, each an intent of its own; `first` is the number of the first group."""
    made: list[Text] = []
    for at, group in enumerate(groups, first):
        name = f"{WRITTEN}{group.name}"
        made.extend(Text(text, name, name, at, False) for text in group.same)
        made.extend(Text(text, f"{name}/{n}", name, at, True) for n, (_, text) in enumerate(group.near))
    return made


def draw(texts: Sequence[Text], count: int, seed: int) -> tuple[Pairs, Right]:
    """Pairs `[count, 2]` of rows, and whether one answer serves both."""
    rng = random.Random(f"{seed}/pairs")
    groups: dict[int, list[int]] = {}
    intents: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        groups.setdefault(text.group, []).append(row)
        intents.setdefault(text.intent, []).append(row)
    # In one order whatever the hash seed.
    members = list(groups.values())
    made: list[tuple[int, int]] = []
    while len(made) < count:
        kind, own = rng.random(), rng.choice(members)
        first = rng.choice(own)
        here = texts[first]
        if kind < _PARAPHRASES:
            others = [row for row in own if texts[row].key == here.key and texts[row].text != here.text]
        elif kind < _PARAPHRASES + _EDITED:
            others = [r for r in own if texts[r].key != here.key and not (here.edit and texts[r].edit)]
        else:
            near = kind < _PARAPHRASES + _EDITED + _SAME_INTENT
            others = [rng.choice(intents[here.intent]) if near else rng.randrange(len(texts))]
            others = [row for row in others if texts[row].key != here.key]
        if others:
            made.append((first, rng.choice(others)))
    pairs = np.array(made, np.int64)
    return pairs, np.array([texts[a].key == texts[b].key for a, b in made])


def encoded(texts: Sequence[str], encoder: BertEncoder, folder: Path | None, progress: Callable[[str], None]) -> Padded:
    """The texts in their order; `folder` keeps them for the next run, `progress` is told what is being done."""
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()
    path = None if folder is None else folder / f"{digest}.npz"
    if path is not None and path.is_file():
        kept = np.load(path)
        return _padded(kept["ids"], kept["lengths"], kept["states"], kept["vectors"])
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(texts)
    states: list[NDArray[np.float16]] = [np.empty(0, np.float16)] * len(texts)
    vectors = np.zeros((len(texts), encoder.dim), np.float32)
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        for row, seen in zip(rows, encoder.encode([texts[row] for row in rows]), strict=True):
            ids[row], states[row], vectors[row] = seen.ids, seen.states.astype(np.float16), seen.vector
        if start % 6400 == 0:
            progress(f"encoded {start} of {len(texts)} texts")
    lengths = np.array([len(its) for its in ids])
    flat_ids, flat_states = np.concatenate(ids), np.concatenate(states)
    if path is not None:
        np.savez(path, ids=flat_ids, lengths=lengths, states=flat_states, vectors=vectors)
    return _padded(flat_ids, lengths, flat_states, vectors)


def _padded(
    ids: NDArray[np.int64], lengths: NDArray[np.int64], states: NDArray[np.float16], vectors: NDArray[np.float32]
) -> Padded:
    ends = np.cumsum(lengths)[:-1]
    return Padded.of(np.split(ids, ends), np.split(states, ends), vectors, MAX_TOKENS)


def fit_comparator(
    texts: Sequence[Text], encoded: Padded, *, steps: int, seed: int, folder: Path | None = None
) -> Comparator:
    """The comparator, each network of so many steps of 128 pairs of its own; arguments as `unseen`."""
    drawn = [(own, *draw(texts, steps * 128, own)) for own in _seeds(seed)]
    return Comparator([_fitted(encoded, pairs, right, steps, own, folder).plain() for own, pairs, right in drawn])


def unseen(
    texts: Sequence[Text], encoded: Padded, *, steps: int, seed: int, folder: Path | None = None
) -> tuple[NDArray[np.float32], Pairs, Right]:
    """What comparators that never saw a pair's intent say of some pairs: log odds, pairs, and whether they are right.

    The model above must learn from log odds as they are for unseen intents, not from those that a network gives the
    pairs it was fitted on. So five more comparators see four fifths of the intents each and score the rest.

    Args:
        texts: the corpus.
        encoded: the same, in the same order.
        steps: of the comparator; these networks take four fifths as many.
        seed: of the pairs and the first network of each comparator; the others have the numbers that follow.
        folder: keeps the networks for the next run; None: nothing does.
    """
    names = sorted({text.intent for text in texts})
    fold_of = np.array([names.index(text.intent) % _FOLDS for text in texts])
    drawn = [(own, *draw(texts, steps * 128, own)) for own in _seeds(seed)]
    _, scored, truth = drawn[0]
    found: list[tuple[NDArray[np.float32], Pairs, Right]] = []
    for held_out in range(_FOLDS):
        other = np.flatnonzero((fold_of[scored] == held_out).all(axis=1))[: _UNSEEN // _FOLDS]
        said = np.zeros(len(other), np.float32)
        for own, pairs, right in drawn:
            seen = (fold_of[pairs] != held_out).all(axis=1)
            net = _fitted(encoded, pairs[seen], right[seen], steps * (_FOLDS - 1) // _FOLDS, own, folder)
            said += log_odds(net, encoded, scored[other]) / MEMBERS
        found.append((said, scored[other], truth[other]))
    scores, held, labels = (np.concatenate(part) for part in zip(*found, strict=True))
    return scores, held, labels


def _seeds(first: int) -> range:
    return range(first, first + MEMBERS)


def _fitted(encoded: Padded, pairs: Pairs, right: Right, steps: int, seed: int, folder: Path | None) -> Net:
    if folder is None:
        return fit(encoded, pairs, right, steps=steps, seed=seed)
    # Whatever the network depends on: the texts are in the vectors.
    of = hashlib.blake2b(encoded.vectors.numpy().tobytes() + pairs.tobytes() + right.tobytes(), digest_size=8)
    path = folder / f"net-{of.hexdigest()}-{steps}-{seed}.pt"
    if not path.is_file():
        torch.save(fit(encoded, pairs, right, steps=steps, seed=seed).state_dict(), path)
    net = Net(encoded.states.shape[2])
    net.load_state_dict(torch.load(path, weights_only=True))
    return net.eval()


def fit_hit_model(
    texts: Sequence[Text], vectors: NDArray[np.float32], scores: NDArray[np.float32], pairs: Pairs, right: Right
) -> tuple[HitModel, float]:
    """The model above the comparator, and the log odds below which a text is not looked at: on pairs that the guards
    let through."""
    readings = {row: reading_of(texts[row].text) for row in sorted(set(pairs.ravel().tolist()))}
    seen = [compare(readings[a], readings[b], whole=False) for a, b in pairs.tolist()]
    cosines = np.einsum("nd,nd->n", vectors[pairs[:, 0]], vectors[pairs[:, 1]]).tolist()
    let = np.array([found.veto is None for found in seen])
    floor = float(np.quantile(scores[let & right], _FLOOR))
    kept = np.flatnonzero(let & (scores >= floor)).tolist()
    model = fit_model(
        [evidence(cosines[at], 0.0, float(scores[at]), seen[at]) for at in kept],
        [bool(right[at]) for at in kept],
        [str(at) for at in kept],
        penalty=10.0,
    )
    return model, round(floor, 2)


def written(texts: Sequence[Text], pairs: Pairs) -> Right:
    """Which pairs are of one written group."""
    return np.array(
        [texts[a].group == texts[b].group and texts[a].intent.startswith(WRITTEN) for a, b in pairs.tolist()]
    )


def ranked(scores: NDArray[np.float32], right: Right) -> float:
    """How often a right pair drawn at random has a higher score than a wrong one: the area under the ROC curve."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(len(scores))
    many = int(right.sum())
    return float((ranks[right].sum() - many * (many - 1) / 2) / (many * (len(scores) - many)))


def bars(
    texts: Sequence[Text],
    vectors: NDArray[np.float32],
    scores: NDArray[np.float32],
    pairs: Pairs,
    right: Right,
    judge: Judge,
) -> dict[float, float]:
    """For each level the loosest threshold at which few of the written near misses would pass.

    Streams of generated questions cannot tell how often texts as people write them are taken for each other. Those of
    the written groups are harder than traffic is; a share of them of `_NEAR_PASS` times the level may pass.
    """
    rule = SemanticRule()
    passed: list[float] = []
    near = written(texts, pairs) & ~right
    for (stored, asked), score in zip(pairs[near].tolist(), scores[near].tolist(), strict=True):
        cosine = float(vectors[stored] @ vectors[asked])
        seen = compare(reading_of(texts[stored].text), reading_of(texts[asked].text), whole=False)
        held = seen.veto is not None or cosine < rule.near_similarity or score < judge.floor
        passed.append(-np.inf if held else judge.log_odds(cosine, score, seen))
    return {
        level: min(
            (rung for rung in LADDER if np.mean(np.array(passed) >= rung) <= _NEAR_PASS * level), default=LADDER[0]
        )
        for level in LEVELS
    }
