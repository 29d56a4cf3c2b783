"""Tables of `headgate bench cache`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from headgate.bench.cache.latency import Latency
from headgate.bench.cache.pairs import HandWritten
from headgate.bench.cache.trial import Row, Rung, StreamResult, violation_bound
from headgate.cache.judge import LEVELS


def print_rows(console: Console, made: Sequence[Row]) -> None:
    """Every policy on every kind of stream."""
    table = Table("streams", "policy", "accepted", "wrong per hit", "95 % interval", "streams above", "of oracle",
                  "of static", "near misses passed")  # fmt: skip
    for row in made:
        low, high = row.error.interval
        above = "" if row.level is None else f"{row.violations.share:.1%} (>= {violation_bound(row):.1%})"
        table.add_row(
            row.kind,
            row.policy,
            "" if row.level is None else f"{row.level:.0%}",
            f"{row.error.share:.2%} of {row.error.trials}",
            f"{low:.2%} to {high:.2%}",
            above,
            f"{row.of_oracle:.1%}",
            "" if row.level is None else f"{row.of_static:.2f}",
            f"{row.near_misses.share:.2%}",
        )
    console.print(table)


def print_rungs(console: Console, kind: str, calibrating: Sequence[Rung], tested: Sequence[Rung]) -> None:
    """What our rule does from every threshold on, on the streams it is certified on and on those it is tried on."""
    levels = ", ".join(f"{level:.0%}" for level in LEVELS)
    table = Table(f"{kind}, from", title=f"streams above: {levels}")
    for name in ("certifying", "tested"):
        for column in (f"{name}: wrong per hit", "streams above", "of oracle"):
            table.add_column(column)
    for rung, other in zip(calibrating, tested, strict=True):
        cells = []
        for one in (rung, other):
            share = f"{one.error.share:.2%} ({one.error.errors} of {one.error.trials})"
            cells += [share, ", ".join(map(str, one.above.values())), f"{one.of_oracle:.1%}"]
        table.add_row(f"{rung.threshold:g}", *cells)
    console.print(table)


def print_near_misses(console: Console, results: Sequence[StreamResult], level: float = 0.02) -> None:
    """By edit type, how many near misses got a wrong answer from our rule and from the static baselines."""
    columns = ("ours", "static + guards", "best static", "cosine 0.95", "cosine 0.90")
    table = Table("edit type", "near misses", *columns, title=f"near misses answered wrongly, tuned to {level:.0%}")
    for edit, counts in sorted(near_misses(results, level).items()):
        shares = [f"{counts[name][1] / max(1, counts[name][0]):.1%}" if name in counts else "" for name in columns]
        table.add_row(edit, str(counts["ours"][0]) if "ours" in counts else "", *shares)
    console.print(table)


def near_misses(results: Sequence[StreamResult], level: float) -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """By edit type and policy: near misses, and those answered wrongly."""
    all_: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.level in (None, level):
            for edit, (trials, errors) in result.tally.by_edit.items():
                all_[edit, result.policy] += trials
                wrong[edit, result.policy] += errors
    made: dict[str, dict[str, tuple[int, int]]] = {}
    for (kind, policy), trials in all_.items():
        made.setdefault(kind, {})[policy] = (trials, wrong[kind, policy])
    return made


def print_hand_written(console: Console, file: str, found: HandWritten) -> None:
    """Pairs nobody generated: what was served, and what should not have been."""
    table = Table(f"hand-written pairs, {file}", "pairs", "served")
    misses = [0, 0]
    for kind, (served, all_) in found.by_kind.items():
        table.add_row(kind, str(all_), f"{served} ({served / all_:.0%})")
        if kind != "paraphrase":
            misses[0], misses[1] = misses[0] + served, misses[1] + all_
    table.add_row("all near misses", str(misses[1]), f"{misses[0]} ({misses[0] / max(1, misses[1]):.1%})")
    console.print(table)
    for kind, stored, asked in found.wrong:
        console.print(f"served wrongly ({kind}): {stored!r} for {asked!r}", markup=False)
    console.print("paraphrases held back, by reason:", dict(Counter(why for *_, why in found.missed)))
    new = [f"{served} of {all_} {name}" for name, (served, all_) in found.new.items()]
    console.print("served where neither text is like one that was fitted on:", ", ".join(new))


def print_latency(console: Console, timed: Latency) -> None:
    """What was measured beside what it should be."""
    table = Table(
        f"{timed.entries:,} entries, {timed.tokens:.0f} wordpieces a text", "measured", "mark", title=timed.encoder
    )
    table.add_row("exact hit, p50", f"{timed.exact_p50 * 1e3:.3f} ms", "0.5 ms")
    table.add_row("exact hit, p99", f"{timed.exact_p99 * 1e3:.3f} ms", "")
    table.add_row(f"look-up by meaning, p50 ({timed.hits:.0%} are hits)", f"{timed.semantic_p50 * 1e3:.2f} ms", "5 ms")
    table.add_row("look-up by meaning, p99", f"{timed.semantic_p99 * 1e3:.2f} ms", "12 ms")
    table.add_row("  of it the embedding, p50", f"{timed.embed_p50 * 1e3:.2f} ms", "")
    table.add_row("  of it the index, p50", f"{timed.index_p50 * 1e3:.2f} ms", "")
    table.add_row("  of it the guards of one paraphrase, p50", f"{timed.guards_p50 * 1e3:.3f} ms", "0.2 ms")
    table.add_row("  of it the guards of one paraphrase, p99", f"{timed.guards_p99 * 1e3:.3f} ms", "")
    table.add_row("look-ups by meaning, 32 at a time", f"{timed.per_second:.0f} /s", "300 /s")
    table.add_row("an entry beyond its text, resident", f"{timed.resident_bytes:.0f} bytes", "2500 bytes")
    table.add_row("an entry beyond its text, as charged", f"{timed.charged_bytes:.0f} bytes", "")
    table.add_row("index recall", f"{timed.recall:.3f}", "")
    console.print(table, f"filled in {timed.fill_s:.0f} s")
