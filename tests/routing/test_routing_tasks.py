"""The files of task classes: what they hold, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.routing.tasks import Example, load_tasks

SMALL = {"classification", "extraction", "summarization", "rewriting", "short_qa", "translation", "chit_chat"}
LARGE = {"math", "code", "planning", "long_form", "function_calling"}
CLASS = "classes:\n  - name: ode\n    tier: large\n    examples: [Write an ode.]\n"


def test_the_classes_that_ship_are_complete() -> None:
    tasks = {task.name: task for task in load_tasks()}
    assert set(tasks) == SMALL | LARGE | {"unknown", "background"}
    assert {name for name, task in tasks.items() if task.tier == "small"} == SMALL | {"background"}
    for name in SMALL | LARGE:
        texts = [example.text for example in tasks[name].examples if example.turns == 1]
        assert len(set(texts)) >= 70, name


def test_a_team_adds_a_class(tmp_path: Path) -> None:
    path = tmp_path / "poetry.yaml"
    path.write_text(
        "classes:\n  - name: ode\n    tier: large\n    examples:\n      - Write an ode.\n"
        "      - {text: rivers, system: You write odes., format: json_object, turns: 3}\n"
    )
    found = {task.name: task for task in load_tasks([path])}
    assert found["ode"].tier == "large"
    assert found["ode"].examples == (Example("Write an ode."), Example("rivers", "You write odes.", "json_object", 3))
    assert len(found) == len(load_tasks()) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("", ":1: the file is empty"),
        ("[]", ":1: the file is a list of 0; a mapping with classes"),
        ("a: 1", ":1: a is not known; classes are accepted"),
        ("classes: []", r":1: classes is a list of 0; a list with at least one class"),
        ("classes:\n  - 3", r":2: classes\[0\] is 3; a mapping with name, tier, examples"),
        ("classes:\n  - tier: small", r":2: classes\[0\] has no name"),
        ("classes:\n  - name: a\n    examples: [x]", r":2: classes\[0\] has no tier"),
        (CLASS.replace("large", "huge"), r":3: classes\[0\]\.tier is 'huge'; small or large is accepted"),
        (
            CLASS.replace("[Write an ode.]", "[]"),
            r":4: classes\[0\]\.examples is a list of 0; a list with at least one",
        ),
        ("classes:\n  - {name: a, tier: small}", r":2: classes\[0\] has no examples; a list"),
        (CLASS.replace("Write an ode.", "x, 2"), r":4: classes\[0\]\.examples\[1\] is 2; a text is accepted"),
        (CLASS.replace("Write an ode.", "x, ' '"), r"examples\[1\] is ' '; a text is accepted"),
        (CLASS.replace("tier", "teir"), r":3: classes\[0\]\.teir is not known; name, tier, examples"),
        (CLASS + "    tier: small\n", r":5: classes\[0\]\.tier is given twice"),
        (CLASS.replace("ode", "unknown", 1), r":2: classes\[0\]\.name is 'unknown', which is kept"),
        (CLASS.replace("ode", "background", 1), r"'background', which is kept"),
        (CLASS.replace("ode", "math", 1), r":2: classes\[0\]\.name is 'math', which is taken"),
        (CLASS + CLASS.split("\n", 1)[1], r":5: classes\[1\]\.name is 'ode', which is taken"),
        (CLASS.replace("Write an ode.", "{system: x}"), r":4: classes\[0\]\.examples\[0\] has no text"),
        (CLASS.replace("Write an ode.", "{text: x, turns: 0}"), r"examples\[0\]\.turns is 0; a number from 1"),
        (CLASS.replace("Write an ode.", "{text: x, format: xml}"), r"\.format is 'xml'; one of text, json_object"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_tasks([path])
    assert str(path) in str(caught.value)


def test_two_files_may_not_name_the_same_class(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(CLASS)
    with pytest.raises(ValueError, match=r"two\.yaml:2: classes\[0\]\.name is 'ode', which is taken"):
        load_tasks([tmp_path / "one.yaml", tmp_path / "two.yaml"])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.yaml: the task classes cannot be read"):
        load_tasks([tmp_path / "absent.yaml"])
