"""Small changes to words and lines: spelling, letters, replacing, joining, prefixes, order.

Where letters matter the words are known ones, because a tokenizer shows a model whole words and not their letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import listed

WORDS = listed(
    """ant arm art bag bat bed bee box bus cap car cat cow cup day dog ear egg eye fan fig fox fun gas hat hen ice ink
    jam jar job key kid leg lid lip log man map mat nut oak oil owl pan pen pet pie pig pot rat red sea sky sun tea toe
    toy van wax web zoo air bay bow cab dot fly ham hip hut lap mud net pin pool rain road roof room rope rose salt
    sand seed ship shoe shop sign silk snow sock sofa song soup star step tail tent tide time town tree vase wall wave
    west wind wine wing wolf wood wool yard year zone army baby ball band bank barn bath bean bear belt bird boat bone
    book boot bowl cake calm camp card cart cave city clay club coal coat coin cold cook corn crab crow dark deer desk
    dish door drum duck dust east farm fast film fire fish flag foot fork frog game gate gift goat gold hand harp hill
    home horn idea iron king kite lake lamb lamp leaf lion milk mill mint moon nail neck nest nose note page park path
    pear pond apple beach bench berry black blade bread brick brown brush cabin camel candy chair chalk cheek chess
    child clock cloud coast coral crown dance dream dress drink eagle earth field floor flour fruit ghost glass globe
    grape grass green hotel horse house juice knife lemon light lunch mango maple metal money month mouse mouth music
    night ocean olive onion paint paper peach pearl phone piano pilot plane plant plate price queen quiet radio river
    robin scarf seven shark sheep shelf shell shirt skirt small smile smoke snake space spoon sport steam stone storm
    sugar table tiger toast torch tower train truck uncle valley wagon watch water whale wheat wheel white woman world
    young zebra animal autumn basket bottle branch bridge bucket butter button camera candle carpet carrot castle
    cheese cherry circle coffee corner cotton desert dinner doctor dragon engine family father finger flower forest
    friend garden hammer island jacket jungle kettle ladder letter lizard market mirror monkey mother museum needle
    number office orange parrot pencil pepper pillow planet potato rabbit ribbon rocket school silver singer spider
    spring square street summer sunset ticket tomato tunnel turtle violin window winter yellow balloon blanket chicken
    compass country cushion dolphin feather giraffe hamster husband kitchen library machine morning penguin picture
    pumpkin rainbow sandals teacher village weather whistle"""
)
"""Known words, all in lower case; a third of the tasks need their letters."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight")


def strings(draw: Draw) -> Task:
    """Level 1: words of 3-4 letters and lines of 2-3 words; 2: 5 letters, 4-5 words; 3: 6-7 letters, 6-8 words.

    Level 4 has lines of 9-11 words and nothing about the letters of a word: those of a longer one could not be known.
    """
    return draw.pick(_KINDS[draw.level])(draw)


def _word(draw: Draw) -> str:
    shortest, longest = ((3, 4), (5, 5), (6, 7))[draw.level - 1]
    return draw.pick([word for word in WORDS if shortest <= len(word) <= longest])


def _line(draw: Draw) -> list[str]:
    return draw.values(WORDS, draw.number(*((2, 3), (4, 5), (6, 8), (9, 11))[draw.level - 1]))


def _quoted(draw: Draw, word: str) -> str:
    return draw.style(("{}", "{}", "'{}'", '"{}"', "the word {}", 'the word "{}"')).format(word)


_LAYOUTS = (
    "{I}: {text}",
    "{I}: {text}",
    "{I}:\n{text}",
    "{I}.\n\n{text}",
    "{text}\n\n{I}.",
    '{I}: "{text}"',
    "Please {i}: {text}",
    "Can you {i}? {text}",
    "Text: {text}\n{I}.",
)


def _told(draw: Draw, instructions: Sequence[str], text: str, **slots: object) -> str:
    """An instruction about a text, in one of many layouts."""
    told = draw.phrase(instructions).format(**slots)
    return draw.style(_LAYOUTS).format(I=told[0].upper() + told[1:], i=told, text=text)


_SPELL = (
    "Spell {word} with hyphens.",
    "Spell {word} letter by letter, with hyphens.",
    "Write {word} with a hyphen between the letters.",
    "Put hyphens between the letters of {word}.",
    "How do you spell {word}? Use hyphens.",
    "Please spell {word} with hyphens.",
    "Split {word} into letters with hyphens.",
    "Write the letters of {word} with hyphens between them.",
    "Give me the letters of {word}, joined by hyphens.",
    "Can you spell {word} with hyphens?",
    "Please write {word} letter by letter with hyphens.",
    "Can you split {word} into letters with hyphens?",
)


def _spell(draw: Draw) -> Task:
    word = _word(draw)
    prompt = draw.phrase(_SPELL).format(word=_quoted(draw, word))
    return Task(prompt, "-".join(word), f"spell|{word}")


_BACKWARDS = (
    "Spell {word} backwards with hyphens.",
    "Write {word} backwards, with a hyphen between the letters.",
    "Spell {word} from the last letter to the first, with hyphens.",
    "Give me the letters of {word} in reverse, with hyphens.",
    "How do you spell {word} backwards? Use hyphens.",
    "Reverse the letters of {word} and put hyphens between them.",
    "Please spell {word} backwards with hyphens.",
    "Write the letters of {word} in reverse with hyphens between them.",
    "Spell {word} in reverse with hyphens.",
    "Write {word} in reverse with hyphens.",
    "Can you spell {word} backwards with hyphens?",
    "Please write {word} backwards with hyphens.",
)


def _backwards(draw: Draw) -> Task:
    word = _word(draw)
    prompt = draw.phrase(_BACKWARDS).format(word=_quoted(draw, word))
    return Task(prompt, f"{'-'.join(word)}, so {'-'.join(reversed(word))}", f"backwards|{word}")


_COUNT = (
    "How many letters are in {word}?",
    "How many letters does {word} have?",
    "Count the letters of {word}.",
    "Count the letters in {word}.",
    "What is the number of letters in {word}?",
    "How many letters are there in {word}?",
    "Please count the letters in {word}.",
    "Tell me how many letters {word} has.",
    "Number of letters in {word}?",
    "Give me the number of letters in {word}.",
    "Can you count the letters of {word}?",
    "Tell me the number of letters in {word}.",
)


def _count(draw: Draw) -> Task:
    word = _word(draw)
    prompt = draw.phrase(_COUNT).format(word=_quoted(draw, word))
    return Task(prompt, f"{'-'.join(word)}, so {len(word)}", f"letters|{word}")


_PLACE = (
    "What is the {place} letter of {word}?",
    "Give me the {place} letter of {word}.",
    "Which letter comes {place} in {word}?",
    "Name the {place} letter of {word}.",
    "What is the {place} letter in {word}?",
    "Tell me the {place} letter of {word}.",
    "Which is the {place} letter of {word}?",
    "The {place} letter of {word}?",
    "Please give me the {place} letter of {word}.",
    "Write down the {place} letter of {word}.",
    "Which letter is {place} in {word}?",
    "Can you tell me the {place} letter of {word}?",
)


def _end_letter(draw: Draw) -> Task:
    word, place = _word(draw), draw.pick(("first", "last"))
    prompt = draw.phrase(_PLACE).format(word=_quoted(draw, word), place=place)
    return Task(prompt, word[0 if place == "first" else -1], f"{place} letter|{word}")


def _middle_letter(draw: Draw) -> Task:
    """The letters up to the one that is asked for are written first, because a token does not show its letters."""
    word = _word(draw)
    place = draw.number(2, len(word) - 1)
    prompt = draw.phrase(_PLACE).format(word=_quoted(draw, word), place=_ORDINALS[place - 1])
    return Task(prompt, f"{'-'.join(word[:place])}, so {word[place - 1]}", f"letter {place}|{word}")


_JOIN_LETTERS = (
    "Which word is {letters}?",
    "Join the letters to a word: {letters}",
    "What word do these letters spell? {letters}",
    "Write {letters} as one word.",
    "{letters}\n\nWhich word is this?",
    "Remove the hyphens and write the word: {letters}",
    "Which word do the letters {letters} make?",
    "Join {letters} to one word.",
    "What word is spelled {letters}?",
    "Put {letters} together to one word.",
    "Which word is spelled {letters}?",
    "Please join the letters {letters} to a word.",
)


def _join_letters(draw: Draw) -> Task:
    word = _word(draw)
    return Task(draw.phrase(_JOIN_LETTERS).format(letters="-".join(word)), word, f"join|{word}")


_REVERSE = (
    "reverse the order of the signs, keep the hyphens",
    "reverse this hyphenated list",
    "write this hyphenated list backwards",
    "reverse the order between the hyphens",
    "turn this hyphenated list around",
    "write the parts between the hyphens in reverse order",
    "put the hyphenated parts in reverse order",
    "give me this hyphenated list in reverse order",
    "write the hyphenated parts from last to first",
    "reverse the hyphenated parts",
    "write this hyphenated list in reverse order",
    "turn the hyphenated parts around",
)


def _reverse(draw: Draw) -> Task:
    count = draw.number(*((3, 3), (4, 5), (6, 7), (8, 9))[draw.level - 1])
    parts = draw.some("0123456789" if draw.chance(0.3) else _LETTERS, count)
    given = "-".join(parts)
    return Task(_told(draw, _REVERSE, given), "-".join(reversed(parts)), f"reverse|{given}")


_REPLACE = (
    "replace {old} with {new}",
    "replace the word {old} with {new}",
    "replace {old} by {new}",
    "change {old} to {new}",
    "change the word {old} into {new}",
    "write {new} instead of {old}",
    "put {new} in place of {old}",
    "use {new} instead of {old}",
    "swap the word {old} for {new}",
    "replace the word '{old}' by '{new}'",
    "write '{new}' in place of '{old}'",
    "change the word '{old}' to '{new}'",
)
_REMOVE = (
    "remove the word {old}",
    "delete the word {old}",
    "remove {old}",
    "take out the word {old}",
    "leave out the word {old}",
    "delete {old}",
    "remove the word '{old}' from this line",
    "write this without the word {old}",
    "drop the word {old}",
    "delete '{old}' from this line",
    "take the word {old} out",
    "leave the word '{old}' out",
)
_INSERT = (
    "insert {new} {side} {old}",
    "insert the word {new} {side} {old}",
    "add {new} {side} {old}",
    "add the word {new} {side} the word {old}",
    "put {new} {side} {old}",
    "write {new} {side} {old}",
    "put the word {new} {side} {old}",
    "insert '{new}' {side} '{old}'",
    "add '{new}' {side} '{old}'",
    "place the word {new} {side} {old}",
    "put '{new}' {side} the word '{old}'",
    "insert the word '{new}' {side} the word '{old}'",
)


def _replace(draw: Draw) -> Task:
    new, *words = [draw.value(WORDS), *_line(draw)]
    old = draw.pick(words)
    if new in words:
        new = draw.pick(("blue", "kind", "nine"))
    line = " ".join(words)
    answer = " ".join(new if word == old else word for word in words)
    return Task(_told(draw, _REPLACE, line, old=old, new=new), answer, f"replace|{old}|{new}|{line}")


def _remove(draw: Draw) -> Task:
    words = _line(draw)
    old = draw.pick(words)
    line = " ".join(words)
    answer = " ".join(word for word in words if word != old)
    return Task(_told(draw, _REMOVE, line, old=old), answer, f"remove|{old}|{line}")


def _insert(draw: Draw) -> Task:
    new, *words = draw.values(WORDS, draw.number(*((3, 3), (4, 6), (7, 8), (10, 12))[draw.level - 1]))
    place, side = draw.number(0, len(words) - 1), draw.pick(("before", "after"))
    line, old = " ".join(words), words[place]
    at = place if side == "before" else place + 1
    answer = " ".join([*words[:at], new, *words[at:]])
    return Task(_told(draw, _INSERT, line, old=old, new=new, side=side), answer, f"insert|{new}|{side}|{old}|{line}")


_SEPARATORS = {"-": "hyphens", "_": "underscores", ", ": "commas", "/": "slashes", " + ": "plus signs"}
_JOIN = (
    "join the words with {by}",
    "join these words with {by}",
    "put {by} between the words",
    "write the words with {by} between them",
    "connect the words with {by}",
    "link the words with {by}",
    "separate the words by {by}",
    "separate these words with {by}",
    "use {by} between the words",
    "link these words by {by}",
    "connect these words by {by}",
    "write these words with {by} in between",
)


def _join(draw: Draw) -> Task:
    words = _line(draw)
    separator = draw.pick(tuple(_SEPARATORS))
    line = " ".join(words)
    prompt = _told(draw, _JOIN, line, by=_SEPARATORS[separator])
    return Task(prompt, separator.join(words), f"join by {separator}|{line}")


_INITIALS = (
    "write the first letter of each word, with hyphens",
    "write the first letters of the words, with hyphens",
    "give me the first letter of every word, with hyphens",
    "take the first letter of each word and join them with hyphens",
    "join the first letters of the words with hyphens",
    "list the first letters of the words with hyphens between them",
    "take the first letters of these words, with hyphens",
    "write only the first letter of each word, with hyphens",
    "make a short form from the first letters, with hyphens",
    "give me the first letters of the words with hyphens between them",
    "write the first letters of these words with hyphens between them",
    "join the first letter of every word with hyphens",
)


def _initials(draw: Draw) -> Task:
    words = draw.some(WORDS, draw.number(*((2, 3), (4, 4), (5, 6), (7, 8))[draw.level - 1]))
    line = " ".join(words)
    return Task(_told(draw, _INITIALS, line), "-".join(word[0] for word in words), f"initials|{line}")


_REPEAT = (
    "Write {word} {n} times{by}.",
    "Repeat {word} {n} times{by}.",
    "Give me {word} {n} times{by}.",
    "Say {word} {n} times{by}.",
    "Write down {word} {n} times{by}.",
    "Please repeat {word} {n} times{by}.",
    "I want {word} {n} times{by}.",
    "Can you write {word} {n} times{by}?",
    "Type {word} {n} times{by}.",
    "Please give me {word} {n} times{by}.",
    "Can you repeat {word} {n} times{by}?",
    "Please write down {word} {n} times{by}.",
)


def _repeat(draw: Draw) -> Task:
    word, count = draw.value(WORDS), draw.number(*((2, 3), (3, 4), (5, 6), (7, 8))[draw.level - 1])
    separator = draw.pick((" ", ", ", "-"))
    by = {" ": "", ", ": ", with commas", "-": ", with hyphens"}[separator]
    shown = draw.style((str(count), _NUMBERS[count - 2]))
    prompt = draw.phrase(_REPEAT).format(word=_quoted(draw, word), n=shown, by=by)
    return Task(prompt, separator.join([word] * count), f"repeat|{word}|{count}|{separator}")


_AFFIX = (
    "add {affix} to the {end} of each word",
    "put {affix} at the {end} of each word",
    "add {affix} at the {end} of every word",
    "write {affix} at the {end} of each word",
    "put {affix} at the {end} of every word",
    "let each word have {affix} at its {end}",
    "write every word with {affix} at the {end}",
    "add {affix} to the {end} of all words",
    "write each word with {affix} at its {end}",
    "give every word {affix} at the {end}",
    "write {affix} at the {end} of every word",
    "put {affix} at the {end} of all words",
)


def _affix(draw: Draw) -> Task:
    words = draw.values(WORDS, draw.number(*((1, 2), (3, 4), (5, 6), (7, 8))[draw.level - 1]))
    before = draw.chance(0.5)
    affix = draw.pick(("re-", "my-", "new-", "old-", "sub-", "x_", "id_", "#", "@", "non-") if before else
                      ("-one", "-old", "_id", ".txt", ".py", "-end", "!", "_new", "-like", "?"))  # fmt: skip
    line, end = " ".join(words), "start" if before else "end"
    mark = draw.style(("'", '"'))
    prompt = _told(draw, _AFFIX, line, affix=f"{mark}{affix}{mark}", end=end)
    answer = " ".join(f"{affix}{word}" if before else f"{word}{affix}" for word in words)
    return Task(prompt, answer, f"affix|{affix}|{end}|{line}")


_LINES: tuple[Callable[[Draw], Task], ...] = (
    _initials, _replace, _remove, _insert, _join, _repeat, _affix, _reverse,
)  # fmt: skip
_COMMON = (_spell, _count, _join_letters, _end_letter, *_LINES)
_HARD = (*(kind for kind in _COMMON if kind is not _end_letter), _middle_letter, _middle_letter, _backwards)
_KINDS = {1: _COMMON, 2: (*_COMMON, _middle_letter), 3: _HARD, BEYOND: _LINES}
