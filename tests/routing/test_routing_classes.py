"""The classifier: what it tells apart with an embedding and without, and what a team's own class changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder, identity
from headgate.routing.classes import TaskClassifier, TaskGuess
from headgate.routing.classes_vectors import KnownVectors
from headgate.routing.tasks import Example, Task, load_tasks
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

CONTRACTS = """
classes:
  - name: contract_review
    tier: large
    examples:
      - Does the non-compete clause in this agreement hold in California?
      - Review the liability cap in section 9 of the attached supply contract.
      - Which clauses of this NDA are unusual for our side?
      - Check whether the termination notice in this lease is enforceable.
      - Flag risks in the indemnity clause below.
      - Is the auto-renewal term of this SaaS agreement acceptable under our playbook?
      - Compare this data processing agreement with our template and point out deviations.
      - What exposure do we have under the warranty clause?
      - Redline the limitation of liability in favour of the buyer.
      - Does this arbitration clause bind our subsidiaries?
      - Are the payment terms in this MSA in line with policy?
      - Find missing clauses in this consultancy agreement.
"""


class Embed:
    """An embedding model that counts what it is asked."""

    def __init__(self, encode: Callable[[str], Vector], name: str) -> None:
        self._encode = encode
        self.name = name
        self.asked: list[str] = []

    async def embed(self, text: str) -> Vector:
        self.asked.append(text)
        return self._encode(text)


@pytest.fixture(scope="module")
def encode() -> Callable[[str], Vector]:
    folder = default_folder()
    assert folder is not None
    encoder = BertEncoder(folder)
    return lambda text: encoder.encode([text])[0].vector


@pytest.fixture(scope="module")
def name() -> str:
    return identity(str(default_folder()))


@pytest.fixture(scope="module")
def classifier(encode: Callable[[str], Vector], name: str) -> TaskClassifier:
    return asyncio.run(TaskClassifier.build(load_tasks(), Embed(encode, name)))


@pytest.fixture(scope="module")
def wordy() -> TaskClassifier:
    return TaskClassifier(load_tasks())


def held_out() -> list[tuple[str, str]]:
    return [(task, prompt) for task, prompts in HELD_OUT.items() for prompt in prompts]


def test_held_out_prompts_find_their_class(classifier: TaskClassifier, encode: Callable[[str], Vector]) -> None:
    guesses = [classifier.classify(RouteFeatures(prompt, encode(prompt))) for _, prompt in held_out()]
    wrong = [(task, g, prompt) for (task, prompt), g in zip(held_out(), guesses, strict=True) if g.task != task]
    assert 1 - len(wrong) / len(guesses) >= 0.9, wrong
    assert all(0.0 < g.confidence <= 1.0 for g in guesses)


def test_words_alone_find_most_classes(wordy: TaskClassifier) -> None:
    right = sum(wordy.classify(RouteFeatures(prompt)).task == task for task, prompt in held_out())
    assert right / len(held_out()) >= 0.85


def test_a_request_whose_embedding_failed_is_told_by_its_words(classifier: TaskClassifier) -> None:
    assert classifier.classify(RouteFeatures("Translate into French: good night")).task == "translation"


def test_what_means_nothing_is_unknown(
    classifier: TaskClassifier, wordy: TaskClassifier, encode: Callable[[str], Vector]
) -> None:
    for noise in ("vbnm ertz 4410 qqpl", "&&&& ////", "wkjhf wkjhf bbn", ""):
        assert classifier.classify(RouteFeatures(noise, encode(noise))).task == "unknown", noise
    for noise in ("&&&& ////", "wkjhf wkjhf bbn", ""):
        assert wordy.classify(RouteFeatures(noise)).task == "unknown", noise


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Summarize this code:\n```\nfor x in xs:\n    total += x\n```", "code"),
        ("Is this email spam? 'You won a cruise, click to translate the terms'", "classification"),
        ("Write a SQL query that sums the orders per month", "code"),
        ("what is 23% of 780", "math"),
        ("Plan a long weekend in Porto", "planning"),
        ("Translate this to Italian and make it formal: hey guys, see you later", "translation"),
        ("Extract the dates from this text as JSON: we met on 4 May and on 6 June", "extraction"),
        ("Send Maria an email that the meeting is moved to four", "function_calling"),
        ("Übersetze ins Englische: Wo ist der Bahnhof?", "translation"),
        ("Fasse diesen Bericht in zwei Sätzen zusammen", "summarization"),
    ],
)
def test_words_of_other_classes_do_not_mislead(
    classifier: TaskClassifier, encode: Callable[[str], Vector], text: str, task: str
) -> None:
    assert classifier.classify(RouteFeatures(text, encode(text))).task == task


def test_the_system_text_says_what_is_to_be_done(classifier: TaskClassifier, encode: Callable[[str], Vector]) -> None:
    text = "Good morning, is the pool open today?"
    vector = encode(text)
    alone = classifier.classify(RouteFeatures(text, vector)).task
    told = classifier.classify(RouteFeatures(text, vector, system="Translate what the user writes into Spanish."))
    assert told.task == "translation" != alone


def test_tools_make_a_function_call(classifier: TaskClassifier) -> None:
    assert classifier.classify(RouteFeatures("Hello!", has_tools=True)) == TaskGuess("function_calling", 1.0)


def test_long_texts_are_read_at_their_ends(classifier: TaskClassifier, encode: Callable[[str], Vector]) -> None:
    body = "The harbour was quiet and the boats lay in two rows. " * 400
    for text in (f"Summarize the following text.\n\n{body}", f"{body}\n\nSummarize the text above."):
        assert classifier.classify(RouteFeatures(text, encode(text))).task == "summarization"


async def test_a_dozen_examples_make_a_class_and_leave_the_others_alone(
    tmp_path: Path, classifier: TaskClassifier, encode: Callable[[str], Vector], name: str
) -> None:
    path = tmp_path / "legal.yaml"
    path.write_text(CONTRACTS)
    embed = Embed(encode, name)
    wider = await TaskClassifier.build(load_tasks([path]), embed)
    assert len(embed.asked) == 12

    own = [
        "Look at clause 14 of this services agreement, is the penalty acceptable for us?",
        "What is risky about the indemnification wording in this NDA?",
        "Does the governing law clause in the lease conflict with our policy?",
        "Which terms of this supplier contract deviate from our template?",
    ]
    told = [wider.classify(RouteFeatures(text, encode(text))).task for text in own]
    assert told.count("contract_review") >= 3, told
    for _, prompt in held_out():
        features = RouteFeatures(prompt, encode(prompt))
        assert wider.classify(features).task == classifier.classify(features).task, prompt


async def test_another_model_embeds_every_example_itself(encode: Callable[[str], Vector]) -> None:
    tasks = [
        Task("colour", "small", (Example("red"), Example("green"))),
        Task("number", "small", (Example("one"), Example("two"))),
    ]
    embed = Embed(encode, "another")
    built = await TaskClassifier.build(tasks, embed)
    assert sorted(embed.asked) == ["green", "one", "red", "two"]
    assert built.classify(RouteFeatures("three", encode("three"))).task == "number"


async def test_words_tell_the_same_once_vectors_are_known(encode: Callable[[str], Vector]) -> None:
    tasks = [
        Task("colour", "small", (Example("a red one"), Example("a green one"))),
        Task("number", "small", (Example("count to one"), Example("count to two"))),
    ]
    words = TaskClassifier(tasks)
    words.fit()
    built = await words.understanding(Embed(encode, "another"))
    asked = RouteFeatures("count the red one")
    assert built.classify(asked) == words.classify(asked)
    assert built.classify(replace(asked, vector=encode(asked.text))) != words.classify(asked)


def test_the_vectors_that_ship_are_those_of_the_examples_that_ship(encode: Callable[[str], Vector], name: str) -> None:
    known = KnownVectors.load(name)
    texts = [example.text for task in load_tasks() for example in task.examples]
    assert [text for text in texts if known.find(text) is None] == []
    for text in texts[::100]:
        vector = known.find(text)
        assert vector is not None
        assert float(vector @ encode(text)) > 0.995
    assert KnownVectors.load("another").find(texts[0]) is None


def test_vectors_are_kept_nearly_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    KnownVectors.save(tmp_path / "v.safetensors", "m", list("abcde"), list(rows))
    known = KnownVectors.load("m", tmp_path / "v.safetensors")
    for text, row in zip("abcde", rows, strict=True):
        found = known.find(text)
        assert found is not None
        assert float(found @ row) > 0.999


def test_vectors_must_be_those_of_the_examples() -> None:
    with pytest.raises(ValueError, match="vectors are given for"):
        TaskClassifier(load_tasks(), [[np.ones(2, np.float32)]] * 3)
