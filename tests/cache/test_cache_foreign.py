"""Texts that are not English, and texts that differ in their spelling alone: nothing is served for them by meaning."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from headgate.cache.answers import AnswerCache
from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.guards import foreign, spelled_apart, spelling_of
from headgate.cache.index import FlatIndex
from headgate.cache.judge import Judge
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Hit, Near, StoredChoice, Verdict


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder() -> AsyncIterator[SentenceEmbedder]:
    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, comparator=Judge.load().comparator)
    await embedder.load()
    yield embedder
    await embedder.close()


async def looked_up(embedder: SentenceEmbedder, judge: Judge, stored: str, asked: str) -> Verdict:
    """What the shipped rule says of a text where another was answered."""
    index, room = FlatIndex(embedder.dim), MemoryStore(1 << 20, time.time)
    cache = AnswerCache(room, Fingerprinter(bytes(16)), index, embedder, time.time, SemanticRule(), judge)
    query = CacheQuery("team", "model", "revision", b"", stored)
    first = await cache.lookup(query)
    await cache.store(
        first.fingerprint,
        query,
        choices=(StoredChoice("an answer", "stop"),),
        model="model",
        prompt_tokens=1,
        completion_tokens=1,
        device_s=1.0,
        vector=first.vector,
        ttl=100.0,
    )
    return (await cache.lookup(CacheQuery("team", "model", "revision", b"", asked))).verdict


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("stored", "asked", "reason"),
    [
        ("头痛怎么办?", "胃痛怎么办?", "foreign"),
        ("ブルートゥースをオンにする方法は?", "ブルートゥースをオフにする方法は?", "foreign"),
        ("Как открыть счёт в банке?", "Как закрыть счёт в банке?", "foreign"),
        ("How is 狗 pronounced?", "How is 猫 pronounced?", "alignment"),
        (
            "Welche Fische darf ich in der Schwangerschaft essen?",
            "Welche Fische darf ich in der Schwangerschaft nicht essen?",
            "foreign",
        ),
        ("Qui peut voter ?", "Qui ne peut pas voter ?", "foreign"),
        ("¿Cómo activo el wifi?", "¿Cómo desactivo el wifi?", "foreign"),
        ("What is the population of Paris?", "Quelle est la population de Paris?", "foreign"),
        ("What does año mean in Spanish?", "What does ano mean in Spanish?", "spelling"),
        ("What is the derivative of x²?", "What is the derivative of x³?", "alignment"),
        ("Convert 3 mW to W", "Convert 3 MW to W", "spelling"),
        ("What does the flag -r do in rm?", "What does the flag -R do in rm?", "spelling"),
    ],
)
async def test_what_the_encoder_cannot_tell_apart_is_not_served(
    stored: str, asked: str, reason: str, embedder: SentenceEmbedder, judge: Judge
) -> None:
    found = await looked_up(embedder, judge, stored, asked)
    assert isinstance(found, Near)
    assert found.reason == reason


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How many people live in São Paulo?", "how many people are living in são paulo?"),
        ("When does the shop close, at 5 PM?", "when does the shop close, at 5 pm?"),
    ],
)
async def test_what_is_spelled_alike_is_served(
    stored: str, asked: str, embedder: SentenceEmbedder, judge: Judge
) -> None:
    assert isinstance(await looked_up(embedder, judge, stored, asked), Hit)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_text_with_a_word_that_the_vocabulary_lacks_has_no_sketch(embedder: SentenceEmbedder) -> None:
    assert await embedder.sketch("How is dog pronounced?")
    assert not await embedder.sketch("How is 狗 pronounced?")
    assert not await embedder.sketch(f"What is {'x' * 150}?")


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "capital france",
        "how do i say 'ich liebe dich' in english",
        'What does "guten Morgen" mean?',
        "kubernetes ingress nginx timeout",
        "dockerfile cmd vs entrypoint",
        "Los Angeles weather",
        "Is Rio de Janeiro safe?",
        "Who was Vincent van Gogh?",
        "Translate into German: I would like to pay",
        "def f(x):\n    return x",
        "2 + 2",
        "a proof, please: a² + b² = c²",
        "general method, x percent of y",
        "😀",
        "9am EST to PST",
        "WHAT IS THE CAPITAL OF FRANCE",
        "Write a Python script to parse ini files",
        "sans serif fonts",
        "chi square test formula",
        "mit license text",
        "aws ses pricing",
        "es6 arrow functions",
        "β blockers side effects",
        "São Paulo population",
    ],
)
def test_english_is_not_foreign(text: str) -> None:
    assert not foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "Was ist die Hauptstadt von Frankreich?",
        "Wie aktiviere ich WLAN?",
        "WIE AKTIVIERE ICH WLAN?",
        "Können Katzen Milch trinken?",
        "Pourquoi le ciel est bleu ?",
        "¿Por qué el cielo es azul?",
        "Mi papá es bueno?",
        "O que posso comer na gravidez?",
        "Cosa posso mangiare in gravidanza?",
        "Wat mag ik eten tijdens de zwangerschap?",
        "Vad får jag äta som gravid?",
        "Mitä saan syödä raskaana?",
        "Jak otworzyć konto w banku?",
        "Làm sao để bật wifi?",
        "Столица Франции?",
        "كيف أفتح حسابا بنكيا؟",
        "수도는 어디입니까 프랑스?",
        "法国的首都是哪里?",
        "Translate into English: Le loyer est dû le dernier jour de chaque mois.",
    ],
)
def test_other_languages_are(text: str) -> None:
    assert foreign(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What does más mean?", "What does mas mean?"),
        ("What is 10⁶?", "What is 10⁹?"),
        ("What does ⇒ mean in logic?", "What does ⇔ mean in logic?"),
        ("What does 😀 mean?", "What does 😡 mean?"),
        ("What does `tar -c` do?", "What does `tar -C` do?"),
        (r"What does \d match?", r"What does \D match?"),
        ("What does %m mean in strftime?", "What does %M mean in strftime?"),
        ('How is the string "ABC" hashed?', 'How is the string "abc" hashed?'),
        ("What is the unit mW?", "What is the unit MW?"),
        ("Is 5 Mb a lot?", "Is 5 MB a lot?"),
        ("Convert 10 m to ft", "Convert 10 M to ft"),
        ("Convert 20 mPa to Pa", "Convert 20 MPa to Pa"),
        ("Convert 3 pF to F", "Convert 3 PF to F"),
        ("Is 2 mSv a lot?", "Is 2 MSv a lot?"),
        ("Convert 2 mHz to Hz", "Convert 2 MHz to Hz"),
        ("What is the ASCII code of a?", "What is the ASCII code of A?"),
        ("How do I use p in Vim?", "How do I use P in Vim?"),
        ("What's the melting point of Co?", "What's the melting point of CO?"),
    ],
)
def test_case_accents_and_signs_tell_apart_where_they_matter(one: str, other: str) -> None:
    assert spelled_apart(spelling_of(one), spelling_of(other))
    assert spelled_apart(spelling_of(other), spelling_of(one))
    assert not spelled_apart(spelling_of(one), spelling_of(f"Please: {one}"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What’s the capital of France…", "What's the capital of France"),
        ("Who wrote 'The Great Gatsby'?", 'who wrote "the great gatsby"?'),
        ("How much is 5 GB?", "how much is 5gb?"),
        ("Are you open at 5 PM?", "are you open at 5 pm"),
        ("Is vitamin C good for me?", "is vitamin c good for me?"),
        ("What is a MHz?", "what is a mhz?"),
        ("Beyoncé's age", "the age of BEYONCÉ"),
        ("What is RAM?", "what is ram?"),
        ("It costs €5", "it costs 5 euros"),
        ("Is 35 PSI too much?", "is 35 psi too much?"),
        ("a 5000 mAh battery", "a 5000 mah battery"),
        ("400 ppm of CO2", "400 PPM of CO2"),
        ("Is the iPhone 14 Pro waterproof?", "is the iphone 14 pro waterproof?"),
        ("a 100 Mbps line", "a 100 mbps line"),
        ("Top 5 Pubs in Leeds", "top 5 pubs in leeds"),
        ("How much is 5 mL?", "how much is 5 ml?"),
    ],
)
def test_where_they_say_nothing_they_do_not(one: str, other: str) -> None:
    assert not spelled_apart(spelling_of(one), spelling_of(other))
