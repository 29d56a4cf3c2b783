"""Drafts as tests make them: an answer, but for some edits."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

Edit = tuple[int, str, int]
"""Where, what, and a token."""


def edits_of(tokens: st.SearchStrategy[int]) -> st.SearchStrategy[list[Edit]]:
    kinds = st.sampled_from(["insert", "replace", "delete", "rest"])
    return st.lists(st.tuples(st.integers(0, 24), kinds, tokens), max_size=3)


def edited(answer: Sequence[int], edits: Sequence[Edit]) -> tuple[int, ...]:
    """No edits: the answer itself. After a `rest` nothing is as in the answer any more."""
    draft = list(answer)
    for place, kind, token in edits:
        at = place % (len(draft) + 1)
        if kind == "insert":
            draft.insert(at, token)
        elif kind == "rest":
            draft[at:] = [token] * 8
        else:
            draft[at : at + 1] = [token] if kind == "replace" else []
    return tuple(draft)
