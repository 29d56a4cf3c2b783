"""Question streams with known right answers, and the replay that measures how a cache's policy does on them."""
