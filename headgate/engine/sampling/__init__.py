"""From logits to the next token: what settings and grammars allow, and the draw."""
