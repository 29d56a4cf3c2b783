"""The demo pair's task generator: seeded samples with reference answers, split into train and test."""

from headgate.engine.demo.tasks.generator import FAMILIES, SYSTEM_PROMPTS, family, generate
from headgate.engine.demo.tasks.sample import Family, Message, Sample, Split, grade, split_of

__all__ = [
    "FAMILIES",
    "SYSTEM_PROMPTS",
    "Family",
    "Message",
    "Sample",
    "Split",
    "family",
    "generate",
    "grade",
    "split_of",
]
