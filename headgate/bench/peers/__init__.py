"""Other engines on the same weights and prompts, in alternation with ours."""
