"""`headgate route learn`: prompts in, both models' outcomes and what the router could have known out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.demo.tasks import BEYOND, grade
from headgate.engine.models.identity import checkpoint_identity
from headgate.routing.cascade import HELD_TOKENS, QUANTILES, Cascade
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import FittedQuality
from headgate.training.evaluate import evaluate
from headgate.training.outcomes import PromptError, confidence_of, dealt, demo_prompts, make_table, read_prompts
from headgate.training.outcomes_command import route
from headgate.training.quality import cascade_costs, costs


@pytest.fixture(scope="module")
def pair(make_checkpoint: MakeCheckpoint) -> tuple[Path, Path]:
    """Two random models whose contexts hold every question of the generator, read byte by byte."""
    small = make_checkpoint("qwen3", max_position_embeddings=2048, num_hidden_layers=1)
    large = make_checkpoint("qwen3", max_position_embeddings=2048, num_hidden_layers=2)
    write_tokenizer(small)
    write_tokenizer(large)
    return small, large


def test_demo_prompts_are_held_out_of_all_levels_and_dealt_by_content() -> None:
    samples = demo_prompts(400, seed=3)
    assert samples == demo_prompts(400, seed=3)
    assert {s.split for s in samples} == {"test"}
    levels = [s.difficulty for s in samples]
    assert all(levels.count(level) > 60 for level in range(1, BEYOND + 1))
    easier = [s.difficulty for s in demo_prompts(400, seed=3, harder=0.5)]
    # 214, 107, 54 and 27 but for prompts that come twice, and families that have no level so hard.
    assert 200 < easier.count(1) < 230
    assert all(0.4 < easier.count(level) / easier.count(level - 1) < 0.6 for level in range(2, BEYOND + 1))
    assert any(len(s.messages) > 1 for s in samples)
    parts = [dealt(s) for s in samples]
    assert all(0.15 < parts.count(part) / len(parts) < 0.35 for part in ("calibration", "test"))
    assert set(parts) == {"train", "calibration", "test"}
    # The same content, asked in other words, lies in the same part.
    by_content: dict[str, set[str]] = {}
    for sample in samples:
        by_content.setdefault(f"{sample.family} {sample.content}", set()).add(dealt(sample))
    assert all(len(parts) == 1 for parts in by_content.values())


def test_a_table_holds_what_both_models_said_and_what_the_small_one_knew(pair: tuple[Path, Path]) -> None:
    samples = demo_prompts(8, seed=0)[:4]
    small, large = pair
    table = make_table(small, large, samples)
    assert (table.small, table.large) == (checkpoint_identity(small), checkpoint_identity(large))
    assert [one.text for one in table.outcomes] == [s.prompt for s in samples]
    for tier, folder in (("small", small), ("large", large)):
        answers = evaluate(folder, samples)
        given = [getattr(one, tier) for one in table.outcomes]
        assert [(a.right, a.tokens) for a in given] == [(a.right, a.tokens) for a in answers]
        assert all(a.right == grade(s, said.text) for a, s, said in zip(given, samples, answers, strict=True))
    for one in table.outcomes:
        assert min(one.probe_s, one.after_probe_s, one.small.device_s, one.large.device_s) > 0
        assert one.confidence.least <= one.confidence.q05 <= one.confidence.q25 <= one.confidence.q50 <= 0
        assert one.confidence.least <= one.confidence.mean
    assert table.vectors.shape[0] == 4
    oracle = transformers.AutoModelForCausalLM.from_pretrained(small, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(small)
    for place in (0, 3):
        messages, tools = samples[place].conversation
        text = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        assert ids.shape[1] == table.outcomes[place].prompt_tokens
        with torch.inference_mode():
            layers = oracle(ids, use_cache=True).past_key_values.layers
            values = layers[len(layers) // 2].values[0].transpose(0, 1).flatten(1)
            state = torch.cat([values[-1], values.mean(0)]).numpy()
        np.testing.assert_allclose(table.states[place][: len(state)], state, atol=5e-3)


def test_no_model_is_asked_where_one_does_not_take_all_prompts(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.training.outcomes.TURN", 1)
    path, told = tmp_path / "prompts.jsonl", list[str]()
    ask = [{"messages": [{"role": "user", "content": text}], "answer": "a"} for text in ("say a", "say b " * 2000)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in ask), encoding="utf-8")
    with pytest.raises(PromptError, match=r"prompt 'say b say b .*' has \d+ tokens; the small model takes at most \d+"):
        make_table(*pair, read_prompts(path), tell=told.append)
    assert told == ["embedding the prompts"]


def test_what_a_small_model_hands_over_is_not_its_answer_and_costs_both(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    samples = demo_prompts(40, seed=1)[:12]
    first = [answer.text[:1] for answer in evaluate(pair[0], samples)]
    phrase = max(set(first), key=first.count)
    taught = tmp_path / "taught"
    shutil.copytree(pair[0], taught)
    token = transformers.AutoTokenizer.from_pretrained(taught)(phrase, add_special_tokens=False).input_ids[0]
    taught_so = {"do_sample": False, "hand_over": phrase, "begin_suppress_tokens": [token]}
    (taught / "generation_config.json").write_text(json.dumps(taught_so))
    alone = [answer.right for answer in evaluate(taught, samples)]
    table = make_table(taught, pair[1], samples)
    assert table.hand_over == phrase
    assert table.handed_over.tolist() == [text == phrase for text in first]
    assert table.handed_over.any()
    table.save(tmp_path / "table")
    table = OutcomeTable.load(tmp_path / "table")
    assert table.hand_over == table.take([0]).hand_over == phrase
    assert table.alone.tolist() == alone
    large = table.right("large")
    for at, one in enumerate(table.outcomes):
        if one.own is not None:
            assert not one.small.right
            assert one.own.tokens > 0
            assert one.confidence.q50 < -50, "no cascade lets it stand"
            assert table.given[at] == large[at]
        else:
            assert table.given[at] == one.small.right
    for source in ("embedding", "probe"):
        kept_s, _ = costs(table, source)
        passed = [0.0 if source == "embedding" else one.probe_s for one in table.outcomes]
        after = [one.small.device_s if source == "embedding" else one.after_probe_s for one in table.outcomes]
        both = [one.large.device_s if one.own is not None else 0.0 for one in table.outcomes]
        np.testing.assert_allclose(kept_s, np.sum([passed, after, both], axis=0))
    stands_s, taken_over_s = cascade_costs(table)
    np.testing.assert_array_equal(stands_s == taken_over_s, table.handed_over)


def test_how_sure_a_model_was_is_told_of_the_tokens_that_a_cascade_looks_at() -> None:
    logprobs = [-float(at) for at in range(HELD_TOKENS)] + [-99.0] * 9
    told = confidence_of(logprobs)
    assert (told.least, told.mean) == (1.0 - HELD_TOKENS, (1 - HELD_TOKENS) / 2)
    for quantile in QUANTILES:
        for off, stands in ((-1e-9, True), (1e-9, False)):
            least = min(told.quantiles[quantile] + off, 0.0)
            assert Cascade(quantile, least).stands(logprobs[:HELD_TOKENS]) == stands


def test_prompts_are_read_from_a_file_and_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    ask = [{"role": "user", "content": "2+2?"}]
    good = {"messages": ask, "answer": "4", "grading": "number", "family": "sums", "level": 2}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(good)}\n", encoding="utf-8")
    (only,) = read_prompts(path)
    assert (only.prompt, only.answer, only.grading, only.family, only.difficulty) == ("2+2?", "4", "number", "sums", 2)
    for broken, complaint in (
        ({**good, "answer": "four"}, "answer is 'four' with grading 'number'; a text with a number"),
        ({**good, "answer": "²"}, "answer is '²' with grading 'number'"),
        ({**good, "answer": "{4", "grading": "json"}, "answer is '{4' with grading 'json'; JSON"),
        ({**good, "answer": "<tool_call>now</tool_call>", "grading": "call"}, "grading 'call'; a <tool_call> block"),
        ({**good, "tools": [{}]}, r"tools\[0\] is '{}'; a function with a string 'name'"),
        ({**good, "grading": "vibes"}, "grading"),
        ({**good, "messages": []}, "no user text"),
        ({**good, "messages": [*ask, {"role": "assistant", "content": "4"}]}, "no user text"),
        ({"messages": ask}, "answer"),
        ({**good, "wanted": 1}, "wanted"),
    ):
        path.write_text(f"{json.dumps(good)}\n{json.dumps(broken)}\n", encoding="utf-8")
        with pytest.raises(PromptError, match=rf"prompts\.jsonl:2: .*{complaint}"):
            read_prompts(path)
    path.write_text(json.dumps({**good, "answer": " Four.\n", "grading": "text"}), encoding="utf-8")
    (only,) = read_prompts(path)
    assert grade(only, "Four.")
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(PromptError, match="has no prompts"):
        read_prompts(path)
    with pytest.raises(PromptError, match="No such file"):
        read_prompts(tmp_path / "none.jsonl")


def test_an_identity_is_a_copys_too_and_not_another_models(pair: tuple[Path, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(pair[0], copy)
    for file in copy.iterdir():
        file.touch()
    assert checkpoint_identity(copy) == checkpoint_identity(pair[0]) != checkpoint_identity(pair[1])
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(bytes(data))
    assert checkpoint_identity(copy) != checkpoint_identity(pair[0])


def test_the_command_writes_a_table_and_says_what_is_wrong(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    lines = [{"messages": [{"role": "user", "content": f"say {word}"}], "answer": word} for word in "abcdefghijkl"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    options = ["learn", "--small", str(pair[0]), "--large", str(pair[1]), "--out", str(tmp_path / "table")]
    made = CliRunner().invoke(route, [*options, "--prompts", str(path)])
    assert made.exit_code == 0, made.output
    assert "table: 12 prompts" in made.output
    table = OutcomeTable.load(tmp_path / "table")
    assert [one.text for one in table.outcomes] == [f"say {word}" for word in "abcdefghijkl"]
    fitted = FittedQuality.load(tmp_path / "table" / "quality.safetensors")
    fitted.check(
        small=checkpoint_identity(pair[0]), large=checkpoint_identity(pair[1]), embedder=table.embedder, hand_over=""
    )
    assert fitted.estimate(table.features(0), "").source == "probe"
    path.write_text('{"messages": 1}\n', encoding="utf-8")
    refused = CliRunner().invoke(route, [*options, "--prompts", str(path)])
    assert refused.exit_code == 1
    assert "prompts.jsonl:1:" in refused.output
