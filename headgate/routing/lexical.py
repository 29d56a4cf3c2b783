"""Task classes by words and marks, for a server without an embedding model."""

from __future__ import annotations

import re

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (task, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for task, pattern in (
        (
            "code",
            r"```|^\s*(?:def|class|import|from \w+ import|#include|public|const|let|var)\b.*[\w(){:;]"
            r"|\bselect\b.+\bfrom\b|[{};]\s*$|\w\(\)"
            r"|\b(?:python|javascript|typescript|java|sql|regex|regular expression|html|css|dockerfile|bash)\b"
            r"|\b(?:unit tests?|stack trace|code|refactor|git|debug|compile)\b|\bC\+\+|\bC#",
        ),
        (
            "translation",
            r"\btranslat\w+|\bhow do (?:you|i) say\b|\binto (?:english|french|german|spanish|italian|dutch)\b",
        ),
        ("summarization", r"\bsummar\w+|\btl;?dr\b|\bkey (?:points|takeaways)\b|\bcondense\b|\brecap\b|\bgist\b"),
        (
            "rewriting",
            r"\bre-?(?:write|phrase|word)\b|\bparaphrase\b|\bproofread\b"
            r"|\b(?:fix|correct|check) (?:the |my )?(?:grammar|spelling)"
            r"|\bmore (?:formal|polite|casual|concise)\b|\bgrammar\b",
        ),
        ("classification", r"\bclassif\w+|\bsentiment\b|\bcategori[sz]e\b|\blabel\b|\bspam\b|\bpositive or negative\b"),
        ("extraction", r"\bextract\b|\bpull (?:out|the)\b|\bfind (?:all|every)\b|\bnamed entit\w+|\bpick out\b"),
        (
            "math",
            r"\d\s*[-+*/×÷^=]\s*\(?-?[\dx]|\b(?:solve|calculate|compute|derivative|integral|equation|probability|percent)\b"
            r"|\bhow much (?:change|is \d)|\bsquare root\b|\b(?:sum|product|average) of\b|\btimes \d|\bprove that\b",
        ),
        (
            "planning",
            r"\bplan\b|\bschedule\b|\bitinerary\b|\broadmap\b|\btimeline\b|\bmilestones?\b"
            r"|\bstep[- ]by[- ]step\b|\bstrategy\b",
        ),
        (
            "function_calling",
            r"^(?:set|book|turn|send|play|remind|order|transfer|start|cancel|call|add)\b"
            r"|\b(?:use|call) the \w+ (?:tool|function|api)\b",
        ),
        (
            "long_form",
            r"\b(?:essay|story|article|blog|speech|poem|novel|cover letter|report|newsletter|lyrics)\b"
            r"|\bin (?:depth|detail)\b",
        ),
        (
            "chit_chat",
            r"^\W*(?:hi|hello|hey|thanks|thank you|good (?:morning|evening|night)|bye|goodbye|lol|ok)\b"
            r"|\bhow are you\b|\byour name\b|\bwho are you\b|\bjoke\b",
        ),
        ("short_qa", r"^\W*(?:what|who|when|where|which|how (?:many|old|tall|far|long)|is|are|does|did|define)\b"),
    )
)
# How far to trust a rule: it saw a word, not the meaning. Greetings and question words say least.
_CONFIDENCE = 0.7
_WEAK = frozenset({"short_qa"})
_WEAK_CONFIDENCE = 0.5
_SHORT_CHARS = 120


def guess(text: str) -> tuple[str, float] | None:
    """The first class whose words occur and how sure that is, or None. The order of the rules settles ties."""
    for task, pattern in _RULES:
        if task in _WEAK and len(text) > _SHORT_CHARS:
            continue
        if pattern.search(text):
            return task, _WEAK_CONFIDENCE if task in _WEAK else _CONFIDENCE
    return None


_CODE = re.compile(
    r"```|^\s*(?:def \w+\(|class \w+[(:]|#include\b|import \w+$|public (?:static|class)\b)", re.MULTILINE
)


def has_code(text: str) -> bool:
    """Whether a text carries source code, not only talk of it."""
    return _CODE.search(text) is not None
