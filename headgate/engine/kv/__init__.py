"""The paged KV cache: block pool, block tables by what layers keep, pages, states, and the tiers that blocks go to."""
