"""Questions about a given passage.

From level 2 on the working says in one form what the text says in many: what is known of the person asked about, or,
where a person is asked for, who does what, up to the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import Draw
from headgate.engine.demo.tasks.extract import a, distinct, person
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import (
    ANIMALS,
    CITIES,
    COLORS,
    COMPANIES,
    FIRST_NAMES,
    FOODS,
    JOBS,
    MONTHS,
    PURCHASES,
    listed,
)

_DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_LANGUAGES = listed("English French German Spanish Italian Polish Greek Turkish Arabic Chinese Japanese Korean Hindi")
_SPORTS = listed("tennis football chess golf hockey basketball volleyball rugby handball badminton cricket darts")
_INSTRUMENTS = listed("guitar piano violin drum flute trumpet cello harp organ clarinet saxophone banjo")
_ROLES = ("neighbor", "boss", "coach", "cousin", "assistant", "best friend", "colleague", "landlord", "tutor", "guide")


@dataclass(frozen=True, slots=True)
class _Relation:
    """What is said about a person: statements (the first is also an answer), questions, and what one does."""

    statements: tuple[str, ...]
    questions: tuple[str, ...]
    does: str
    value: Callable[[Draw], str]


def _open(vocabulary: tuple[str, ...]) -> Callable[[Draw], str]:
    return lambda draw: draw.value(vocabulary)


def _closed(words: tuple[str, ...]) -> Callable[[Draw], str]:
    return lambda draw: draw.pick(words)


def _colored(draw: Draw) -> str:
    thing = draw.value(PURCHASES)
    return f"{draw.pick(COLORS)} {thing}" if draw.chance(0.5) else thing


_RELATIONS: tuple[_Relation, ...] = (
    _Relation(("{who} lives in {what}.", "The home of {who} is in {what}.", "{who} has a house in {what}."),
              ("Where does {who} live?", "In which city does {who} live?", "Where is the home of {who}?",
               "Which city does {who} live in?", "In what city does {who} live?"), "lives in {what}", _open(CITIES)),
    _Relation(("{who} was born in {what}.", "{what} is where {who} was born.", "The birthplace of {who} is {what}."),
              ("Where was {who} born?", "In which city was {who} born?", "What is the birthplace of {who}?",
               "What is {who}'s birthplace?", "Which city was {who} born in?"), "was born in {what}", _open(CITIES)),
    _Relation(("{who} traveled to {what}.", "{who} took a trip to {what}.", "{who} made a journey to {what}."),
              ("Where did {who} travel to?", "Which city did {who} travel to?", "To which city did {who} travel?",
               "Where did {who} take a trip to?", "What city did {who} travel to?"), "traveled to {what}",
              _open(CITIES)),
    _Relation(("{who} works as {a_what}.", "{who} is {a_what}.", "{who} earns money as {a_what}.",
                "{who} has a job as {a_what}."),
              ("What is the job of {who}?", "What is {who}'s job?", "What does {who} work as?",
               "Which job does {who} have?", "What job does {who} have?"), "works as {a_what}", _open(JOBS)),
    _Relation(("{who} works for {what}.", "{who} is employed by {what}.", "{what} is the company of {who}."),
              ("Which company does {who} work for?", "For which company does {who} work?",
               "What is the company of {who}?", "What company does {who} work for?", "What is {who}'s company?"),
              "works for {what}", _open(COMPANIES)),
    _Relation(("{who} has {a_what} as a pet.", "The pet of {who} is {a_what}.", "{who} keeps {a_what} as a pet."),
              ("Which pet does {who} have?", "What is the pet of {who}?", "What is {who}'s pet?",
               "Which animal does {who} have as a pet?", "What pet does {who} have?"), "has {a_what} as a pet",
              _open(ANIMALS)),
    _Relation(("{who} likes the color {what}.", "The favorite color of {who} is {what}.",
                "{who} loves the color {what}."),
              ("Which color does {who} like?", "What is the favorite color of {who}?",
               "What is {who}'s favorite color?", "Which color does {who} love?", "What color does {who} like?"),
              "likes the color {what}", _closed(COLORS)),
    _Relation(("{who} bought {a_what}.", "{who} went to the shop and bought {a_what}.", "{who} paid for {a_what}."),
              ("What did {who} buy?", "Which thing did {who} buy?", "What did {who} pay for?",
               "What was bought by {who}?", "What thing did {who} buy?"), "bought {a_what}", _colored),
    _Relation(("{who} lost {a_what}.", "{who} cannot find {a_what}.", "{who} lost {a_what} on the way home."),
              ("What did {who} lose?", "Which thing did {who} lose?", "What can {who} not find?",
               "What was lost by {who}?", "What thing did {who} lose?"), "lost {a_what}", _colored),
    _Relation(("{who} ate the {what}.", "{who} had the {what} for lunch.", "For lunch {who} ate the {what}."),
              ("What did {who} eat?", "What did {who} have for lunch?", "Which food did {who} eat?",
               "What was eaten by {who}?", "What food did {who} eat?"), "ate the {what}", _open(FOODS)),
    _Relation(("{who} met {what}.", "{who} had a meeting with {what}.", "{who} sat down with {what}."),
              ("Whom did {who} meet?", "Who did {who} meet?", "With whom did {who} have a meeting?",
               "Which person did {who} meet?", "What person did {who} meet?"), "met {what}", person),
    _Relation(("{who} called {what}.", "{who} phoned {what}.", "{who} talked to {what} on the phone."),
              ("Whom did {who} call?", "Who did {who} call?", "Whom did {who} talk to on the phone?",
               "Which person did {who} call?", "What person did {who} call?"), "called {what}", person),
    _Relation(("{who} plays {what}.", "The sport of {who} is {what}.", "{who} is good at {what}."),
              ("Which sport does {who} play?", "What is the sport of {who}?", "What is {who}'s sport?",
               "What is {who} good at?", "What sport does {who} play?"), "plays {what}", _closed(_SPORTS)),
    _Relation(("{who} speaks {what}.", "The language of {who} is {what}.", "{who} talks in {what}."),
              ("Which language does {who} speak?", "What is the language of {who}?", "What is {who}'s language?",
               "In which language does {who} talk?", "What language does {who} speak?"), "speaks {what}",
              _closed(_LANGUAGES)),
    _Relation(("{who} practices on the {what}.", "The instrument of {who} is the {what}.",
                "{who} makes music on the {what}."),
              ("Which instrument does {who} practice on?", "What is the instrument of {who}?",
               "What is {who}'s instrument?", "On which instrument does {who} make music?",
               "What instrument does {who} practice on?"), "practices on the {what}", _closed(_INSTRUMENTS)),
    _Relation(("{who} comes back on {what}.", "On {what} {who} comes back.", "{who} will be back on {what}."),
              ("When does {who} come back?", "On which day does {who} come back?", "When will {who} be back?",
               "Which day does {who} come back?", "On what day does {who} come back?"), "comes back on {what}",
              _closed(_DAYS)),
    _Relation(("{who} has a birthday in {what}.", "The birthday of {who} is in {what}.",
                "In {what} {who} has a birthday."),
              ("In which month does {who} have a birthday?", "When is the birthday of {who}?",
               "When is {who}'s birthday?", "In which month is the birthday of {who}?",
               "In what month does {who} have a birthday?"), "has a birthday in {what}", _closed(MONTHS)),
    _Relation(("{who} is {what} years old.", "The age of {who} is {what}.", "{who} turned {what} this year."),
              ("How old is {who}?", "What is the age of {who}?", "What is {who}'s age?", "What age is {who}?",
               "How many years old is {who}?"), "is {what} years old", lambda draw: str(draw.number(5, 95))),
    _Relation(("{who} sleeps in room {what}.", "The room of {who} is number {what}.", "{who} has room {what}."),
              ("In which room does {who} sleep?", "What is the room of {who}?", "What is {who}'s room?",
               "Which room does {who} have?", "In what room does {who} sleep?"), "sleeps in room {what}",
              lambda draw: str(draw.number(2, 399))),
)  # fmt: skip

_WHO = (
    "Who {does}?",
    "Which person {does}?",
    "Which of them {does}?",
    "What is the name of the person who {does}?",
    "Can you tell me who {does}?",
    "Do you know who {does}?",
    "Tell me who {does}.",
    "Tell me which person {does}.",
    "Say who {does}.",
)
_LINKS = (
    "{b} is the {role} of {a}.",
    "The {role} of {a} is {b}.",
    "{a}'s {role} is {b}.",
    "{b} is {a}'s {role}.",
)
_WHO_IS = (
    "Who is the {role} of {a}?",
    "Who is {a}'s {role}?",
    "What is the name of the {role} of {a}?",
    "What is the name of {a}'s {role}?",
    "Tell me who the {role} of {a} is.",
    "Can you tell me who {a}'s {role} is?",
)
_PASSAGE = (
    "{text} {question}",
    "{text}\n{question}",
    "{text}\n\n{question}",
    "Read the text and answer the question. {text} {question}",
    "Passage: {text}\nQuestion: {question}",
    "Text: {text}\nQuestion: {question}\nAnswer:",
    "Answer from the passage. {text} {question}",
    "{question} {text}",
    "{question}\n\n{text}",
    "Context: {text}\n\n{question}",
    "Question: {question}\nText: {text}",
    "Here is a text: {text}\n\n{question}",
    'Use this text to answer: "{text}"\n{question}',
    "Please read this.\n\n{text}\n\n{question}",
    "I have a question about this text: {text}\n{question}",
    "Context: {text}\nQuestion: {question}",
    "Read this text. {text}\n\n{question}",
    "Please answer the question from the text.\n\n{text}\n\n{question}",
)
NOT_SAID = "The text does not say."


def _statement(template: str, who: str, what: str) -> str:
    return template.format(who=who, what=what, a_what=a(what))


def passage(draw: Draw) -> Task:
    """A question about a given text.

    Level 1: one person; 2: two people; 3: three or four people with two facts each, or a question of two steps. The
    answer of those is a sentence, so that it names the person it found first. 4: as 3, with five or six people.
    """
    level = draw.level
    people = draw.values(FIRST_NAMES, level if level < 3 else draw.number(*((3, 4) if level == 3 else (5, 6))))
    relations = draw.some(_RELATIONS, 3 if level == 1 else 2 + draw.number(0, 1))
    said = relations if level > 1 else relations[: draw.number(1, 2)]
    facts: dict[tuple[str, _Relation], str] = {}
    for who in people:
        # The first relation holds for everyone, so that the question cannot be answered without the person.
        own = said if level == 1 else [said[0], draw.pick(said[1:])]
        for relation in own:
            # "Who lost a bag?" would be unclear next to someone who lost a red bag.
            taken = {word for (_, other), what in facts.items() if other is relation for word in what.split()[-1:]}
            while (what := relation.value(draw)).split()[-1] in taken or what.split()[0] in people:
                pass
            facts[who, relation] = what
    sentences = [_statement(draw.pick(relation.statements), who, what) for (who, relation), what in facts.items()]
    said_of = dict(zip(facts, sentences, strict=True))
    if level == 2 and draw.chance(0.3):
        dropped = draw.number(0, 3)
        del facts[list(facts)[dropped]], sentences[dropped]
    linked = draw.chance((0.15, 0.2, 0.4, 0.4)[level - 1])
    named = {word for what in facts.values() for word in what.split()}
    role, stranger = draw.pick(_ROLES), distinct(draw, FIRST_NAMES, {*people, *named})
    first, second = (people[0], stranger) if level < 3 else draw.some(people, 2)
    if linked:
        sentences.append(draw.pick(_LINKS).format(a=first, b=second, role=role))
        if level >= 3 and draw.chance(0.6):
            # A second link, of another person or another role, so that the first must be looked for.
            third, fourth = draw.some([who for who in people if who != first], 2)
            other_role = draw.pick([known for known in _ROLES if known != role])
            other = draw.pick(((third, role, fourth), (first, other_role, third), (third, other_role, first)))
            sentences.append(draw.pick(_LINKS).format(a=other[0], b=other[2], role=other[1]))
    sentences = draw.shuffled(sentences)
    text = " ".join(sentences)
    told = _Told(sorted(facts, key=lambda fact: sentences.index(said_of[fact])), facts)
    draw.settled()
    if linked and (level < 3 or draw.chance(0.25)):
        question = draw.phrase(_WHO_IS).format(a=first, role=role)
        answer, asked, steps = second, f"{first}'s {role}", [_linked(first, second, role)]
    elif level > 1 and draw.chance(0.1):
        missing = [(who, relation) for who in [*people, stranger] for relation in said if (who, relation) not in facts]
        who, relation = draw.pick([(who, relation) for who, relation in missing if not linked or who != stranger]
                                  or missing)  # fmt: skip
        question, answer = draw.phrase(relation.questions).format(who=who), NOT_SAID
        steps = told.of(who)
        asked = f"{relation.does}, {who}"
    else:
        who, relation = draw.pick([(who, relation) for who, relation in facts if not linked or who == second]
                                  or list(facts))  # fmt: skip
        what = facts[who, relation]
        asked = f"{relation.does}, {who}"
        if linked and who == second:
            template = draw.phrase(relation.questions)
            owned = "{who}'s" in template or draw.styled(0.5)
            question = template.format(who=f"{first}'s {role}" if owned else f"the {role} of {first}")
            answer, asked = _statement(relation.statements[0], who, what), f"{relation.does}, {first}'s {role}"
            steps = [_linked(first, second, role), *told.of(who)]
        elif draw.chance(0.3):
            question = draw.phrase(_WHO).format(does=_statement(relation.does, who, what))
            answer, asked = who, f"who {_statement(relation.does, who, what)}"
            steps = told.up_to(who, relation)
        else:
            question, answer = draw.phrase(relation.questions).format(who=who), what
            steps = told.of(who)
    prompt = draw.phrase(_PASSAGE).format(text=text, question=question)
    working = ", ".join(steps) if level > 1 else ""
    return Task(prompt, answer, f"{text}|{asked}", question=question, working=working)


def _linked(first: str, second: str, role: str) -> str:
    return _LINKS[0].format(a=first, b=second, role=role).rstrip(".")


@dataclass(frozen=True, slots=True)
class _Told:
    """What a text says, in its order, each fact as `<who> <does>`."""

    order: Sequence[tuple[str, _Relation]]
    facts: Mapping[tuple[str, _Relation], str]

    def of(self, who: str) -> list[str]:
        """All of one person; of a stranger, that there is nothing."""
        found = [self._fact(person, relation) for person, relation in self.order if person == who]
        return found or [f"nothing of {who}"]

    def up_to(self, who: str, wanted: _Relation) -> list[str]:
        """Who stands in the relation, up to the person."""
        people = [person for person, relation in self.order if relation is wanted]
        return [self._fact(person, wanted) for person in people[: people.index(who) + 1]]

    def _fact(self, who: str, relation: _Relation) -> str:
        return f"{who} {_statement(relation.does, who, self.facts[who, relation])}"
