"""Whole-number arithmetic."""

from __future__ import annotations

from headgate.engine.demo.tasks.sample import Draw, Task

_TEMPLATES = (
    "What is {sum}?",
    "{sum} =",
    "Calculate {sum}.",
    "Compute {sum}",
    "How much is {sum}?",
    "{sum}",
    "Please calculate {sum}.",
    "What does {sum} equal?",
    "Solve: {sum}",
    "Give me the result of {sum}.",
)
_ADD = (
    "What is {a} plus {b}?",
    "Add {a} and {b}.",
    "What is the sum of {a} and {b}?",
    "How much is {a} plus {b}?",
)
_SUBTRACT = (
    "What is {a} minus {b}?",
    "Subtract {b} from {a}.",
    "What is the difference between {a} and {b}?",
    "How much is {a} minus {b}?",
)
_MULTIPLY = (
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "What is the product of {a} and {b}?",
    "How much is {a} times {b}?",
)


def arithmetic(draw: Draw) -> Task:
    """Level 1: two digits and the small times table; 2: three digits; 3: two steps and two-digit products."""
    operation = draw.pick("++--*")
    if draw.level == 3 and draw.chance(0.6):
        return _two_steps(draw)
    if operation == "*":
        a, b = draw.number(0, 10), draw.number(0, 10)
        if draw.level > 1:
            a = draw.number(11, 99) if draw.level == 3 else draw.number(2, 12)
            b = draw.number(2, 9 if draw.level == 3 else 12)
        return _task(draw, f"{a} * {b}", a * b, _MULTIPLY, a, b)
    high = (99, 999, 999)[draw.level - 1]
    a, b = draw.number(0, high), draw.number(0, high)
    if draw.level == 1 and draw.chance(0.4):
        a, b = draw.number(0, 20), draw.number(0, 20)
    if operation == "-":
        a, b = max(a, b), min(a, b)
        return _task(draw, f"{a} - {b}", a - b, _SUBTRACT, a, b)
    return _task(draw, f"{a} + {b}", a + b, _ADD, a, b)


def _two_steps(draw: Draw) -> Task:
    a, b, c = (draw.number(1, 50) for _ in range(3))
    if draw.chance(0.5):
        return _task(draw, f"{a} + {b} + {c}", a + b + c, (), a, b)
    c = draw.number(1, a + b)
    return _task(draw, f"{a} + {b} - {c}", a + b - c, (), a, b)


def _task(draw: Draw, formula: str, result: int, wordings: tuple[str, ...], a: int, b: int) -> Task:
    if wordings and draw.chance(0.35):
        prompt = draw.phrase(wordings).format(a=a, b=b)
    else:
        shown = formula.replace(" ", "") if draw.chance(0.3) else formula
        if draw.chance(0.3):
            shown = shown.replace("*", "x" if " " in shown else "×")
        prompt = draw.phrase(_TEMPLATES).format(sum=shown)
    return Task(prompt, str(result), formula)
