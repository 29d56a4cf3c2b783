import json

import pytest

from headgate.engine.demo import checkpoint

NAMES = ("teacher", "student")


def test_shipped_folders_are_complete_and_within_forty_megabytes() -> None:
    total = 0
    for name in NAMES:
        folder = checkpoint(name)
        names = {path.name for path in folder.iterdir()}
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
    with pytest.raises(ValueError, match="'large' is unknown; known: teacher, student"):
        checkpoint("large")  # type: ignore[arg-type]


def test_the_student_has_less_than_half_of_the_teachers_active_weights() -> None:
    sizes = {}
    for name in NAMES:
        config = json.loads((checkpoint(name) / "config.json").read_text())
        hidden, head = config["hidden_size"], config["head_dim"]
        attention = 2 * hidden * head * (config["num_attention_heads"] + config["num_key_value_heads"])
        width = config.get("moe_intermediate_size", 0) * config.get("num_experts_per_tok", 0)
        mlp = 3 * hidden * (width or config["intermediate_size"])
        sizes[name] = config["num_hidden_layers"] * (attention + mlp) + hidden * config["vocab_size"]
    assert 2 * sizes["student"] < sizes["teacher"]
