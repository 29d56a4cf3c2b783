"""A closed list of facts: capitals, opposites, plurals and short definitions."""

from __future__ import annotations

from headgate.engine.demo.tasks.draw import Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import listed


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("/") for pair in listed(text))


CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Iceland": "Reykjavik",
    "Belgium": "Brussels",
    "Hungary": "Budapest",
    "Romania": "Bucharest",
    "Bulgaria": "Sofia",
    "Croatia": "Zagreb",
    "Serbia": "Belgrade",
    "Slovenia": "Ljubljana",
    "Slovakia": "Bratislava",
    "Ukraine": "Kyiv",
    "Estonia": "Tallinn",
    "Latvia": "Riga",
    "Lithuania": "Vilnius",
    "Switzerland": "Bern",
    "Turkey": "Ankara",
    "Egypt": "Cairo",
    "Morocco": "Rabat",
    "Tunisia": "Tunis",
    "Kenya": "Nairobi",
    "Ethiopia": "Addis Ababa",
    "Ghana": "Accra",
    "Nigeria": "Abuja",
    "Senegal": "Dakar",
    "Uganda": "Kampala",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Vietnam": "Hanoi",
    "Thailand": "Bangkok",
    "Mongolia": "Ulaanbaatar",
    "Nepal": "Kathmandu",
    "Pakistan": "Islamabad",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Jordan": "Amman",
    "Lebanon": "Beirut",
    "Australia": "Canberra",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Argentina": "Buenos Aires",
    "Brazil": "Brasilia",
    "Colombia": "Bogota",
    "Ecuador": "Quito",
    "Uruguay": "Montevideo",
    "Venezuela": "Caracas",
    "South Korea": "Seoul",
}
"""Country to capital, one for one."""

DEFINITIONS = {
    "a cache": "A cache keeps results that were computed before, so that they need not be computed again.",
    "a KV cache": "A KV cache keeps the keys and values of past tokens, so that each step computes only new ones.",
    "a gateway": "A gateway is a server between clients and services that checks and forwards requests.",
    "a token": "A token is a piece of text, often part of a word, that a language model reads or writes.",
    "a tokenizer": "A tokenizer splits text into tokens and joins tokens back into text.",
    "a router": "A router decides which model or server answers a request.",
    "a language model": "A language model predicts the next token of a text.",
    "a prompt": "A prompt is the text that is given to a language model.",
    "a batch": "A batch is a group of requests that are computed together.",
    "a scheduler": "A scheduler decides which work is done next.",
    "an embedding": "An embedding is a list of numbers that stands for the meaning of a text.",
    "quantization": "Quantization stores numbers with fewer bits to save memory and time.",
    "distillation": "Distillation trains a small model to imitate a larger one.",
    "speculative decoding": "Speculative decoding lets a small model draft tokens that a large model verifies.",
    "latency": "Latency is the time between a request and its answer.",
    "throughput": "Throughput is the amount of work done per second.",
    "a GPU": "A GPU is a processor that runs many simple computations at once.",
    "a CPU": "A CPU is the main processor of a computer.",
    "an API": "An API is a set of rules by which programs talk to each other.",
    "a server": "A server is a program or machine that answers requests from clients.",
    "a database": "A database is an organized store of data.",
    "a mixture of experts": "A mixture of experts is a model that uses only a few of its parts for each token.",
    "a transformer": "A transformer is a neural network that relates tokens to each other by attention.",
    "attention": "Attention lets a model weigh how much each token matters to another.",
    "a neural network": "A neural network is a model made of layers of simple units with learned weights.",
    "a thread": "A thread is a sequence of instructions that runs inside a process.",
    "a hash": "A hash is a short fixed-size number computed from data.",
    "rate limiting": "Rate limiting restricts how many requests a client may send in a given time.",
    "streaming": "Streaming sends an answer piece by piece while it is being made.",
    "Headgate": "Headgate is an inference gateway that owns its engine.",
}
"""A term, with its article, to a hand-written definition."""

OPPOSITES = _pairs(
    """hot/cold big/small tall/short fast/slow old/young hard/soft light/dark heavy/light loud/quiet
    happy/sad rich/poor strong/weak early/late clean/dirty full/empty open/closed wet/dry wide/narrow deep/shallow
    thick/thin sweet/bitter good/bad right/wrong left/right up/down first/last high/low near/far cheap/expensive
    long/short easy/difficult true/false alive/dead safe/dangerous polite/rude brave/afraid rough/smooth always/never
    inside/outside above/below before/after day/night"""
)
"""A word to its opposite."""

PLURALS = _pairs(
    """cat/cats dog/dogs book/books table/tables house/houses box/boxes bus/buses dish/dishes
    church/churches glass/glasses city/cities baby/babies story/stories country/countries party/parties child/children
    man/men woman/women foot/feet tooth/teeth mouse/mice goose/geese ox/oxen person/people leaf/leaves wolf/wolves
    knife/knives life/lives shelf/shelves half/halves sheep/sheep fish/fish deer/deer potato/potatoes tomato/tomatoes
    hero/heroes piano/pianos day/days key/keys toy/toys"""
)
"""A noun to its plural."""

_CAPITAL = (
    "What is the capital of {country}?",
    "Capital of {country}?",
    "Tell me the capital of {country}.",
    "What's the capital of {country}?",
    "Which city is the capital of {country}?",
    "Name the capital of {country}.",
    "Do you know the capital of {country}?",
    "What is the capital city of {country}?",
    "The capital of {country} is",
    "{country}'s capital is which city?",
    "Please tell me the capital of {country}.",
    "What is {country}'s capital?",
    "Can you tell me the capital of {country}?",
    "I want to know the capital of {country}.",
    "Please name the capital of {country}.",
    "Which city is {country}'s capital?",
    "Do you know what the capital of {country} is?",
    "I need the capital of {country}.",
)
_COUNTRY = (
    "Which country has {capital} as its capital?",
    "{capital} is the capital of which country?",
    "Of which country is {capital} the capital?",
    "What country is {capital} the capital of?",
    "Name the country whose capital is {capital}.",
    "Which country's capital is {capital}?",
    "Whose capital is {capital}?",
    "Tell me which country has the capital {capital}.",
    "In which country is {capital} the capital?",
    "Which country has the capital {capital}?",
    "{capital} is the capital of what country?",
    "Please tell me which country has the capital {capital}.",
    "Tell me the country whose capital is {capital}.",
    "What country has {capital} as its capital?",
)
_DEFINITION = (
    "What is {term}?",
    "Define {bare}.",
    "What's {term}?",
    "Explain {term}.",
    "What does {bare} mean?",
    "Can you explain what {term} is?",
    "Give me a definition of {bare}.",
    "Tell me what {term} is.",
    "Definition of {bare}",
    "Please explain {term}.",
    "What do you mean by {bare}?",
    "I want to know what {term} is.",
    "Do you know what {term} is?",
    "Please tell me what {term} is.",
    "Can you define {bare}?",
    "Please define {bare}.",
)
_OPPOSITE = (
    "What is the opposite of {word}?",
    "Opposite of {word}?",
    'What is the opposite of "{word}"?',
    "Tell me the opposite of {word}.",
    "Name the opposite of {word}.",
    "Which word is the opposite of {word}?",
    "What's the opposite of {word}?",
    "Give me the opposite of {word}.",
    'Which word means the opposite of "{word}"?',
    "The opposite of {word} is",
    "Do you know the opposite of {word}?",
    'Tell me the opposite of "{word}".',
    "Please tell me the opposite of {word}.",
    "Can you tell me the opposite of {word}?",
)
_PLURAL = (
    "What is the plural of {word}?",
    "Plural of {word}?",
    'What is the plural of "{word}"?',
    "Tell me the plural of {word}.",
    "Name the plural of {word}.",
    "Which word is the plural of {word}?",
    "What's the plural of {word}?",
    "Give me the plural of {word}.",
    'Give me the plural of "{word}".',
    "The plural of {word} is",
    "Do you know the plural of {word}?",
    'Tell me the plural of "{word}".',
    "Please tell me the plural of {word}.",
    "Can you tell me the plural of {word}?",
)


def facts(draw: Draw) -> Task:
    """Level 1: the capital of a country; 2: the country of a capital, opposites and plurals; 3: a definition.

    The answers are a closed list, so the content includes the wording: the test split asks known facts in new words.
    """
    if draw.level == 3:
        term = draw.pick(tuple(DEFINITIONS))
        bare = term.split(" ", 1)[1] if term.startswith(("a ", "an ")) else term
        prompt = draw.phrase(_DEFINITION).format(term=term, bare=bare)
        return Task(prompt, DEFINITIONS[term], prompt.lower())
    kind = draw.pick(("country", "country", "opposite", "plural")) if draw.level == 2 else "capital"
    if kind in ("opposite", "plural"):
        pairs, wordings = (OPPOSITES, _OPPOSITE) if kind == "opposite" else (PLURALS, _PLURAL)
        word = draw.pick(tuple(pairs))
        prompt = draw.phrase(wordings).format(word=word)
        return Task(prompt, f"The {kind} of {word} is {pairs[word]}.", prompt.lower())
    country, capital = draw.pick(tuple(CAPITALS.items()))
    prompt = draw.phrase(_CAPITAL if kind == "capital" else _COUNTRY).format(country=country, capital=capital)
    return Task(prompt, f"The capital of {country} is {capital}.", prompt.lower())
