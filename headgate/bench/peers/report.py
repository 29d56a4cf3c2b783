"""What the matches say: a table per pair, and where everybody lies under the roofline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import SHAPES
from headgate.bench.output import table_of
from headgate.bench.peers.footprint import Footprint
from headgate.bench.peers.match import Match
from headgate.bench.peers.protocol import About, Round

_HEADS = ("ours, tokens/s (decode)", "theirs", "ours / theirs", "decode only", "spread", "share of ceiling")


def table(matches: Sequence[Match], ceilings: Ceilings) -> Table:
    """The matches of one pair. Ratios: median [least, greatest] of neighbouring rounds; two values: ours, theirs."""
    first = matches[0]
    title = f"{first.model}: ours {first.weights} against {first.peer}"
    result = table_of(title, ("workload",), _HEADS, box=box.MARKDOWN)
    for match in matches:
        if not match.ours:
            result.add_row(match.workload, "", escape(match.reason))
            continue
        result.add_row(
            match.workload,
            _rate(match, match.ours),
            _rate(match, match.theirs),
            _ratio(match.ratios),
            _ratio(match.decode_ratios),
            f"{_spread(match.ours):.0%}, {_spread(match.theirs):.0%}",
            _shares(match, ceilings),
        )
    return result


def plot(matches: Sequence[Match], ceilings: Ceilings, file: Path) -> None:
    """Roofline: operations per second over operations per byte, one panel per shape; ours filled, theirs hollow."""
    from matplotlib.figure import Figure  # only plots need it

    shapes = list(dict.fromkeys(match.model for match in matches))
    figure = Figure(figsize=(7 * len(shapes), 5), layout="constrained")
    axes = figure.subplots(1, len(shapes), squeeze=False)[0]
    for panel, shape in zip(axes, shapes, strict=True):
        points = _points([match for match in matches if match.model == shape], ceilings)
        lowest = min((x for places in points.values() for x, _ in places), default=1.0) / 2
        highest = max((x for places in points.values() for x, _ in places), default=1.0) * 2
        for dtype in ("bfloat16", "int8"):
            ridge = ceilings.peak(dtype) / ceilings.read_bytes_s
            xs = [lowest, min(max(ridge, lowest), highest), highest]
            ys = [min(x * ceilings.read_bytes_s, ceilings.peak(dtype)) / 1e9 for x in xs]
            panel.plot(xs, ys, color="black", linewidth=1, linestyle="-" if dtype == "int8" else "--")
            panel.annotate(f"{dtype} product", (highest, ys[-1]), ha="right", va="bottom", fontsize=8)
        for number, (name, places) in enumerate(points.items()):
            mine = name.startswith("headgate")
            panel.plot(
                [x for x, _ in places],
                [y / 1e9 for _, y in places],
                linestyle="none",
                marker="osD^vP*X<>"[number % 10],
                color=f"C{number % 10}",
                markerfacecolor=f"C{number % 10}" if mine else "none",
                markersize=8 if mine else 7,
                label=name,
            )
        panel.set(xscale="log", yscale="log", title=shape, xlabel="operations per byte read", ylabel="GOP/s")
        panel.grid(visible=True, which="major", linewidth=0.3)
        panel.legend(fontsize=7, loc="lower right")
    figure.suptitle(
        f"prefill 512 and decode b1, b8, b32 under the roofline of: {ceilings.device}; "
        "peers at their ratio to ours in the same rounds",
        fontsize=9,
    )
    figure.savefig(file, dpi=130)


def _points(matches: Sequence[Match], ceilings: Ceilings) -> Mapping[str, list[tuple[float, float]]]:
    """(intensity, operations per second) by engine.

    Ours against several peers is the median of its places, and each peer stands at its ratio to ours of the rounds that
    the two played in turns: the machine's speed differs from match to match.
    """
    ours: dict[tuple[str, str], list[tuple[float, float]]] = {}
    theirs: list[tuple[str, tuple[str, str], float, float]] = []
    for match in matches:
        footprint = Footprint(SHAPES[match.model])
        if not match.ours or match.their_about is None:
            continue
        mine = footprint.place(match, match.our_about, match.ours, ceilings)
        others = footprint.place(match, match.their_about, match.theirs, ceilings)
        key = (f"headgate:{match.weights}", match.workload)
        if mine is not None:
            ours.setdefault(key, []).append((mine.intensity, mine.flops))
        if mine is not None and others is not None:
            theirs.append((match.peer, key, others.intensity, others.flops / mine.flops))
    middles = {key: statistics.median(flops for _, flops in places) for key, places in ours.items()}
    points: dict[str, list[tuple[float, float]]] = {}
    for (name, workload), places in ours.items():
        points.setdefault(name, []).append((places[0][0], middles[name, workload]))
    for peer, key, intensity, ratio in theirs:
        points.setdefault(peer, []).append((intensity, middles[key] * ratio))
    return points


def _shares(match: Match, ceilings: Ceilings) -> str:
    footprint = Footprint(SHAPES[match.model])

    def share(about: About | None, rounds: tuple[Round, ...]) -> str:
        place = footprint.place(match, about, rounds, ceilings) if about is not None else None
        return f"{place.share:.0%}" if place is not None else "-"

    return f"{share(match.our_about, match.ours)}, {share(match.their_about, match.theirs)}"


def _rate(match: Match, rounds: Sequence[Round]) -> str:
    decode = match.decode_tokens_s(rounds)
    return f"{match.tokens_s(rounds):,.0f}" + (f" ({decode:,.0f})" if decode else "")


def _ratio(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]" if ratios else ""


def _spread(rounds: Sequence[Round]) -> float:
    seconds = [r.total_s for r in rounds]
    return (max(seconds) - min(seconds)) / statistics.median(seconds)
