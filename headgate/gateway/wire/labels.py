"""What a client says of a request for its own accounts: who it is for, and labels.

The usage ledger keeps both for good, in the row of each generation: so they have a longest length.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

EndUser = Annotated[str, Meta(max_length=512)]
"""OpenAI takes 64 characters of a `safety_identifier`, Anthropic 256 of a `user_id`; clients of both send either some
200."""
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
"""As OpenAI bounds it."""
