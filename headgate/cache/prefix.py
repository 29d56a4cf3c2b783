"""Prefix index: from the tokens of a block and all before it to the block that holds their keys and values.

A block's identity is a keyed BLAKE2b digest of (parent identity, tokens); the first parent is a root derived from the
tenant and the adapter. Equal identities therefore mean equal whole prefixes of one tenant, and without the process's
secret key nobody can construct a collision.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16


class PrefixIndex:
    """Maps identities of computed blocks to block numbers. One block has at most one identity, and vice versa."""

    def __init__(self, key: bytes) -> None:
        """`key`: up to 64 secret bytes, drawn once per process."""
        self._key = key
        self._block_of: dict[bytes, int] = {}
        self._identity_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def root(self, tenant: str, adapter: str = "", dtype: str = "") -> bytes:
        """Parent of a sequence's first block. `dtype`: what keys and values are kept in.

        Lengths are part of it, so that no two triples collide.
        """
        salt = f"{len(tenant)}:{tenant}{len(adapter)}:{adapter}{dtype}".encode()
        return blake2b(salt, key=self._key, digest_size=DIGEST_BYTES, person=b"root").digest()

    def identity(self, parent: bytes, tokens: Sequence[int] | NDArray[np.int32]) -> bytes:
        """Identity of a block that holds `tokens` after `parent`."""
        body = np.asarray(tokens, dtype=np.int32).tobytes()
        return blake2b(parent + body, key=self._key, digest_size=DIGEST_BYTES, person=b"block").digest()

    def find(self, identity: bytes) -> int | None:
        """The block with this identity, if it is still resident."""
        return self._block_of.get(identity)

    def publish(self, identity: bytes, block: int) -> bool:
        """Make a block findable. False when another block already stands for these tokens: then nothing changes."""
        if identity in self._block_of:
            return self._block_of[identity] == block
        self.forget(block)
        self._block_of[identity] = block
        self._identity_of[block] = identity
        return True

    def forget(self, block: int) -> None:
        """The block's contents are about to be overwritten, or are not to be trusted."""
        identity = self._identity_of.pop(block, None)
        if identity is not None:
            del self._block_of[identity]

    def holds(self, block: int) -> bool:
        """Whether the block can be found by some identity."""
        return block in self._identity_of
