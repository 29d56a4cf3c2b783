import json

import pytest

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tokenizer import train_tokenizer

NAMES = ("teacher", "student", "undistilled")


def test_shipped_folders_are_complete_and_within_forty_megabytes() -> None:
    total = 0
    for name in NAMES:
        folder = checkpoint(name)
        # Whoever has served them from here has their packed weights beside them; those are not shipped.
        names = {path.name for path in folder.iterdir() if path.name != ".headgate"}
        assert names == {
            "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json",
        }  # fmt: skip
        total += sum(path.stat().st_size for path in folder.iterdir())
        generation = json.loads((folder / "generation_config.json").read_text())
        assert generation["do_sample"] is False
        assert generation["eos_token_id"] == [2, 0]
    assert total <= 40_000_000


def test_unknown_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="'large' is unknown; known: teacher, student, undistilled"):
        checkpoint("large")  # type: ignore[arg-type]


def test_the_students_are_alike_and_a_teachers_token_reads_three_times_as_many_weights() -> None:
    configs = {name: json.loads((checkpoint(name) / "config.json").read_text()) for name in NAMES}
    for config in configs.values():
        del config["transformers_version"]  # of who wrote it
    assert configs["student"] == configs["undistilled"]
    assert 3 * _active_weights(configs["student"]) < _active_weights(configs["teacher"])


def _active_weights(config: dict[str, int]) -> int:
    hidden, head = config["hidden_size"], config["head_dim"]
    attention = 2 * hidden * head * (config["num_attention_heads"] + config["num_key_value_heads"])
    width = config.get("moe_intermediate_size", 0) * config.get("num_experts_per_tok", 0)
    mlp = 3 * hidden * (width or config["intermediate_size"])
    return config["num_hidden_layers"] * (attention + mlp) + hidden * config["vocab_size"]


def test_the_shipped_models_share_the_tokenizer_that_the_recipe_makes() -> None:
    made = json.loads(train_tokenizer(seed=0).to_str())
    for name in NAMES:
        assert json.loads((checkpoint(name) / "tokenizer.json").read_text(encoding="utf-8")) == made, name
