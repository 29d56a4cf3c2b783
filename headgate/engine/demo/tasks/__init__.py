"""The demo pair's task generator: seeded samples with reference answers, split into train, calibration and test."""

from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw, Split, Variety, split_of
from headgate.engine.demo.tasks.generator import FAMILIES, SYSTEM_PROMPTS, each_beyond, each_cell, family, generate
from headgate.engine.demo.tasks.grading import grade
from headgate.engine.demo.tasks.sample import Family, Message, Sample, Task
from headgate.engine.demo.tasks.variants import Variants, variants

__all__ = [
    "BEYOND",
    "FAMILIES",
    "SPLITS",
    "SYSTEM_PROMPTS",
    "Draw",
    "Family",
    "Message",
    "Sample",
    "Split",
    "Task",
    "Variants",
    "Variety",
    "each_beyond",
    "each_cell",
    "family",
    "generate",
    "grade",
    "split_of",
    "variants",
]
