"""Between conversations and tokens: chat template, pictures, tokenizer; detokenizer, stop strings, thoughts, calls."""
