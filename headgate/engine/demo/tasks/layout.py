"""Putting an instruction and the text it speaks about together, in the ways people do."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.demo.tasks.draw import Draw

_COMMAND = (
    "{ask}: {text}",
    "{ask}: {text}",
    "{ask}:\n{text}",
    "{ask}:\n\n{text}",
    "{ask}.\n{text}",
    "{ask}.\n\n{text}",
    "{text}\n\n{ask}.",
    "{text}\n{ask}.",
    "{text}\n\n{ask}",
)
_SENTENCE = ("{ask} {text}", "{ask}\n{text}", "{ask}\n\n{text}", "{text}\n\n{ask}", "{text}\n{ask}")
_HEADING = ("{ask} {text}", "{ask} {text}", "{ask}\n{text}", "{text}\n{ask}", "{text}\n\n{ask}")


def ask(draw: Draw, instructions: Sequence[str], text: str, *, quotes: bool = False, **slots: object) -> str:
    """One of the instructions (see `Draw.phrase`) with the text before or after it.

    An instruction is a command without its full stop ("Count these items"), a question ("How many are these?"), a
    sentence ("These are to be counted.") or a heading ("Count:"). Where it names `{text}` itself, the text goes there.
    Other `slots` are filled in too. `quotes`: the text may stand in quotation marks.
    """
    chosen = draw.phrase(instructions)
    if "\n" in text:
        # A text of several lines begins on its own line.
        chosen = chosen.replace(": {text}", ":\n{text}").replace(" {text}", "\n{text}")
    if "{text}" in chosen:
        return chosen.format(text=text, **slots)
    chosen = chosen.format(**slots)
    if quotes and draw.styled(0.2):
        text = f'"{text}"'
    layouts = _HEADING if chosen.endswith(":") else _SENTENCE if chosen.endswith(("?", ".")) else _COMMAND
    if layouts is _COMMAND and draw.styled(0.25):
        small = chosen[0].lower() + chosen[1:]
        polite = draw.style(("Please {}", "Please {}", "Can you {}?", "Could you {}?"))
        chosen = polite.format(small)
        layouts = _SENTENCE if chosen.endswith("?") else _COMMAND
    layout = draw.style(layouts)
    if "\n" in text:
        layout = layout.replace(" {text}", "\n{text}")
    return layout.format(ask=chosen, text=text)
