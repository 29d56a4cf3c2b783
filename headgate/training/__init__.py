"""Training: the demo pair's recipe, and distillation of any teacher into any student with the same tokenizer."""
