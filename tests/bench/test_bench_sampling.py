from click.testing import CliRunner

from headgate.bench.engine.sampling import sampling


def test_times_every_kind_of_setting_by_both() -> None:
    result = CliRunner().invoke(sampling, ["--vocabulary", "200", "--rows", "2", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    assert "2 rows of 200 logits" in result.output
    for part in ("greedy", "temperature", "top_k 50", "top_p 0.95", "min_p 0.05", "kernels", "stock operators"):
        assert part in result.output
