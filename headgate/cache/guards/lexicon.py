"""The words the guards look for, which are English ones: texts in other languages are never asked about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from headgate.cache.guards.words import word_set


def _table(**groups: str) -> Mapping[str, str]:
    """Word → name of its group. An underscore in a group's name is for names that Python reserves."""
    return MappingProxyType({word: group.strip("_") for group, words in groups.items() for word in words.split()})


CONTRACTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "can't": ("can", "not"), "cannot": ("can", "not"), "cant": ("can", "not"), "won't": ("will", "not"),
        "shan't": ("shall", "not"), "ain't": ("is", "not"), "dont": ("do", "not"), "doesnt": ("does", "not"),
        "didnt": ("did", "not"), "isnt": ("is", "not"), "arent": ("are", "not"), "wasnt": ("was", "not"),
        "whats": ("what", "is"), "whos": ("who", "is"), "hows": ("how", "is"), "let's": ("let", "us"),
        "i'm": ("i", "am"), "im": ("i", "am"),
    }
)  # fmt: skip

IS_AFTER = word_set("what who where when why how that there here it he she which")
"""Words after which 's is a verb; elsewhere it marks possession."""

WH = word_set("what who whom whose when where why which how")
BE = word_set("is are am")

LANGUAGES = word_set(
    "english french german spanish italian portuguese dutch swedish norwegian danish finnish polish czech slovak"
    " hungarian romanian bulgarian greek turkish russian ukrainian arabic hebrew persian farsi hindi urdu bengali tamil"
    " chinese mandarin cantonese japanese korean vietnamese thai indonesian malay swahili latin esperanto welsh irish"
    " catalan basque croatian serbian python java javascript typescript rust go golang c ruby perl php kotlin swift"
    " scala haskell lua julia matlab sql bash powershell fortran cobol lisp clojure erlang elixir dart assembly"
)

COLORS = _table(
    red="red", blue="blue", green="green", yellow="yellow", black="black", white="white", brown="brown",
    purple="purple", pink="pink", orange="orange", gray="gray grey", gold="gold golden",
)  # fmt: skip
"""Colour words by colour."""

_PEOPLES = _table(
    france="french", britain="british uk gb", ireland="irish", germany="german germans", china="chinese",
    japan="japanese", italy="italian italians", spain="spanish", portugal="portuguese", netherlands="dutch holland",
    belgium="belgian belgians", austria="austrian austrians", switzerland="swiss", sweden="swedish swedes",
    norway="norwegian norwegians", denmark="danish danes", finland="finnish finns", poland="polish poles",
    czechia="czech czechs", hungary="hungarian hungarians", romania="romanian romanians", greece="greek greeks",
    turkey="turkish turks", russia="russian russians", ukraine="ukrainian ukrainians", india="indian indians",
    korea="korean koreans", vietnam="vietnamese", thailand="thai", egypt="egyptian egyptians", canada="canadian",
    australia="australian australians", mexico="mexican mexicans", brazil="brazilian brazilians", wales="welsh",
    scotland="scottish scots", usa="american americans america", europe="european europeans",
)  # fmt: skip
LANDS: Mapping[str, str] = {**_PEOPLES, **{land: land for land in _PEOPLES.values()}}
"""Countries by what their people and things are called, and by their names."""

AMBIGUOUS_LANGUAGES = word_set("go c swift latin basic rust ruby dart julia scala thai assembly perl elixir polish")

POLITE = word_set("please kindly pls plz")
ABOUT_WORDS = LANGUAGES | word_set(
    "word words say saying mean means meaning translate translation spell spelling pronounce synonym synonyms antonym"
    " rhyme rhymes letter letters phrase write rewrite reply respond repeat polite politely sentence email message"
)
"""Where one of these occurs, a polite word may be what the text is about: "the German word for please"."""

NEGATION = _table(
    not_="not", no="no", never="never", without="without w/o", except_="except excluding excepting besides",
    neither="neither", nor="nor", nobody="nobody", nothing="nothing nowhere", unless="unless", instead="instead rather",
    hardly="hardly barely scarcely rarely seldom", lack="lack lacks lacking", avoid="avoid avoids avoiding",
    fail="fail fails failed", but="but", other="other another", free="free",
)  # fmt: skip

# fmt: off
POLARITY: Mapping[str, str] = _table(
    **{
        "rise+": "increase increases increased increasing raise raises raising rise rises rising grow grows gain gains",
        "rise-": "decrease decreases decreased decreasing reduce reduces reducing lower lowers lowering fall falls drop"
        " drops shrink shrinks lose loses",
        "open+": "open opens opened opening",
        "open-": "close closes closed closing shut",
        "add+": "add adds added adding insert include includes including",
        "add-": "remove removes removed removing delete deletes deleting drop exclude excludes",
        "buy+": "buy buys bought buying purchase",
        "buy-": "sell sells sold selling",
        "lend+": "lend lends lent lending",
        "lend-": "borrow borrows borrowed borrowing",
        "first+": "first earliest initial",
        "first-": "last latest final",
        "start+": "start starts started starting begin begins began beginning launch launches resume",
        "start-": "stop stops stopped stopping end ends ended ending finish finishes quit halt pause",
        "on+": "enable enables enabled enabling activate turn-on on",
        "on-": "disable disables disabled disabling off deactivate",
        "allow+": "allow allows allowed permit permits accept accepts approve approves",
        "allow-": "forbid forbids deny denies block blocks reject rejects refuse refuses ban prevent prevents",
        "most+": "most highest largest biggest maximum max longest tallest best greatest strongest fastest oldest"
        " hottest richest",
        "most-": "least lowest smallest tiniest minimum min shortest worst weakest slowest youngest coldest poorest",
        "more+": "larger bigger higher taller longer better greater faster stronger older hotter richer",
        "more-": "smaller shorter worse slower weaker younger colder poorer",
        "big+": "big large high tall long hot old rich heavy strong hard difficult expensive deep wide",
        "big-": "small little low short cold new young poor light weak easy simple cheap shallow narrow",
        "good+": "good great positive right correct true safe advantage advantages pros benefits benefit strengths"
        " benefits healthy legal win wins won winner success succeed love",
        "good-": "bad negative wrong incorrect false unsafe disadvantage disadvantages cons drawbacks drawback"
        " weaknesses harms unhealthy illegal lost loser failure hate dislike risks dangerous",
        "up+": "up upload uploads push upgrade upstairs above top",
        "up-": "down download downloads pull downgrade downstairs below bottom",
        "in+": "inside input import imports enter entering arrive arrives arrival incoming indoor internal",
        "in-": "outside output export exports leave leaving depart departs departure outgoing outdoor external",
        "before+": "before earlier previous prior",
        "before-": "after later next following",
        "encode+": "encode encrypt compress lock pack zip attach connect install mount",
        "encode-": "decode decrypt decompress unlock unpack unzip detach disconnect uninstall unmount",
        "send+": "send sends sent teach teaches",
        "send-": "receive receives received learn learns",
        "same+": "same similar similarities similarity agree",
        "same-": "different difference differences opposite disagree",
        "left+": "left west western",
        "left-": "right east eastern",
        "north+": "north northern",
        "north-": "south southern",
        "male+": "male man men boy boys father son husband king brother uncle",
        "male-": "female woman women girl girls mother daughter wife queen sister aunt",
        "ask+": "ask asks question questions",
        "ask-": "answer answers reply",
        "front+": "front forward forwards ahead ascending",
        "front-": "back backward backwards behind reverse descending",
        "public+": "public",
        "public-": "private",
        "import+": "serialize",
        "import-": "deserialize parse",
        "hot+": "heat heating warm",
        "hot-": "cool cooling chill",
        "alive+": "born birth alive live",
        "alive-": "died die death dead",
        "cause+": "cause causes",
        "cause-": "effect effects cure cures",
    }
)
# fmt: on
"""Word → pair and side. A word in two pairs counts for the later one: what matters is that the sides differ."""

NEGATING_PREFIXES = ("un", "dis", "de", "in", "im", "ir", "il", "non", "anti", "mis", "a", "counter")

COMPARATORS = _table(
    more="more", less="less fewer", over="over above exceeding exceeds exceed", under="under below beneath",
    least="least minimum min", most="most maximum max", exactly="exactly precisely", about="about approximately roughly"
    " around nearly almost", than="than", within="within", beyond="beyond", equal="equal equals", up="up",
)  # fmt: skip

QUANTIFIERS = _table(
    all="all entire whole", some="some", none="none", every="every", only="only just solely", each="each", any_="any"
    " anyone anything", both="both", either="either", few="few", many="many", several="several", half="half",
    a_few="a_few", a_little="a_little", a_lot="a_lot", everyone="everyone everybody", everything="everything",
    someone="someone somebody", no_one="no_one",
)  # fmt: skip


TEMPORAL = _table(
    now="now currently nowadays presently", current="current present", today="today tonight", yesterday="yesterday",
    tomorrow="tomorrow", latest="latest newest", recent="recent recently lately", ago="ago", last="last", next_="next",
    this="this", previous="previous previously former formerly", upcoming="upcoming future", until="until till",
    since="since", during="during", while_="while", before="before earlier", after="after later afterwards", was="was",
    were="were", did="did", had="had", will="will shall", would="would", been="been", ever="ever", already="already",
    yet="yet", still="still", always="always", often="often usually sometimes", once="once", soon="soon", used="used",
    past="past", new="new", daily="daily", weekly="weekly", monthly="monthly", yearly="yearly annual annually",
    morning="morning", noon="noon midday", afternoon="afternoon", evening="evening", night="night", midnight="midnight",
    hour="hour hours", day="day days", week="week weeks", month="month months", year="year years", decade="decade"
    " decades", century="century centuries",
)  # fmt: skip

FORMAT = _table(
    json="json", yaml="yaml", xml="xml", csv="csv", html="html", markdown="markdown", latex="latex", table="table"
    " tabular", list_="list lists listed", bullets="bullet bullets bulleted", steps="step steps", sentence="sentence"
    " sentences", paragraph="paragraph paragraphs", word="word words", character="character characters letters letter",
    line="line lines one-line one-liner", page="page pages", brief="brief briefly short shortly concise concisely terse"
    " tldr", long="long detailed detail details in-depth thorough lengthy comprehensive", essay="essay", poem="poem",
    haiku="haiku", limerick="limerick", song="song lyrics", story="story tale", joke="joke", email="email e-mail mail",
    letter_="memo", tweet="tweet", outline="outline", summary="summary summarize summarise", code="code script program"
    " function snippet", formal="formal formally professional", informal="informal casual casually friendly",
    simple="simple simply eli5 layman beginner child kid", example="example examples", quote="quote quotes",
    number="number numbers", diagram="diagram chart graph", explain="explain explanation", translate="translate"
    " translation", definition="define definition meaning", compare="compare comparison", rhyme="rhyme rhyming",
)  # fmt: skip

CASE_MATTERS = word_set(
    "polish turkey march may us it who china nice job bath reading apple amazon go swift rust gap august mercury word"
    " excel access windows mobile chad target shell visa bill mark will frank jack rose grace hope faith joy dawn amber"
    " java oracle meta earth sun moon orange delta python jordan georgia lima cork hamlet iris art dick rob sue pat"
    " guy drew max ray dean earl duke baker smith cook young long king brown green white black stone wood"
)
"""Words that are something else with a capital letter."""
PRODUCTS = word_set(
    "python java swift rust go apple amazon excel word access windows mobile target shell visa oracle meta delta earth"
    " sun moon"
)
"""Those of them that are asked about so often that many leave the capital letter out."""

TIME_SENSITIVE = word_set(
    "today tonight now currently current latest newest yesterday tomorrow recent recently nowadays lately upcoming"
    " breaking live weather forecast news headlines o'clock trending score scores"
)
TIME_SENSITIVE_PHRASES = (
    "this week", "this month", "this year", "this morning", "this afternoon", "this evening", "this weekend",
    "this season", "last week", "last month", "last year", "last night", "next week", "next month", "next year",
    "the time", "what time", "time is it", "the date", "what date", "what day", "day is it", "the day", "the moment",
    "right now", "at present", "so far", "up to date", "these days", "stock price", "share price", "exchange rate",
    "bitcoin price", "price of", "prices of", "how old", "years ago", "days ago", "who is the president",
    "prime minister", "in stock", "is open", "are open", "is down", "of the day", "ago",
)  # fmt: skip

_AT_HAND = (
    "(?:director(?:y|ies)|folder|path|branch|line|user|row|column|cell|commit|file|tab|page|node|element|cursor|process"
    "|thread|session|window|url|shell|scope|buffer|iteration|selection|playlist|layer|frame|workspace|context|object"
    "|instance|slide|sheet|worksheet|request|password)(?! (?:version|release|price|count|number|rate))"
)
_KEPT = (
    "(?:commits?|files?|tabs?|tags?|rows?|records?|entr(?:y|ies)|searches|documents?|emails|messages|photos|calls|items"
    "|folders?|backups?|checkpoint|migration|branch(?:es)?|log|logs)(?! (?:version|release|price|count|number|news))"
)
NOT_ABOUT_NOW = tuple(
    re.compile(f" (?:{words})(?= )")
    for words in (
        f"current {_AT_HAND}",
        f"(?:latest|recent|newest) (?:git )?{_KEPT}",
        "(?:current|currently) (?:working|checked|logged|selected|signed|open|running|active)(?: \\w+)?",
        "recently (?:used|closed|opened|deleted|viewed|added|played|modified|changed|visited)",
        "(?:electric|electrical|alternating|direct|ocean|eddy|rip|strong|weak|ac|dc|air|water) currents?",
        "current (?:flows?|through|in (?:a|the) (?:circuit|wire|resistor|coil)|density|divider|source|transformer)",
        "(?:the |what )?time (?:zones?|differences?|complexity|complexities|signature|series|period|frame|limit|machine"
        "|span|management|dilation|value|constant|travel|out|outs|stamps?|units?|formats?|it takes?|needed|required"
        "|spent)",
        "(?:all|most of|much of|some of|half|part of|at|by|of|from|during|reduce|measure|save) the time",
        "the time (?:of|when|that|between|i|you|we|to)",
        "differences? between \\w+ (?:and|or) \\w+",
        "\\w+ differs? from \\w+",
        "(?:the|what) (?:date|day) (?:of|when|that|on|did|do|does|was|were|before|after|in)",
        "(?:how|where|why|what|who|can|could|do|does|did|to|that|they|people|animals|i|we|you) (?:\\w+ ){0,3}live"
        "(?! (?:score|scores|stream|streams|update|updates|result|results|coverage|feed|price|prices|traffic|tv|news))",
        "live (?:in|on|with|without|under|together|long|longer|forever|alone|underground|near|for|by|up|at|as|action"
        "|wallpaper|oak|music|data|reload|share|birth|births|load|cell|cells|bait|wire|yeast|vaccine|cd|usb|off)",
        "breaking (?:a|an|the|up|down|change|changes|bad|point|into|in|out|through|apart|bread|ground|of|my|free|even)",
        "(?:credit|sat|act|gre|gmat|toefl|ielts|iq|test|exam|fico|apgar|z|f1|musical|film|orchestral|wonderlic|fit|f)"
        " scores?",
        "(?:open|opened) (?:source|sourced|to the public|to interpretation)|(?:is|are) open (?:source|set|sets|ended)",
        "how old (?:do|does|must|should|can|was|were|did|would|need)",
        "how old (?:is|are) (?:a|an|children|kids|people|most|babies)",
        "how long ago",
        # What one is to do in a state of things that the text tells of.
        "(?:what|what (?:should|can|must|do) (?:i|we) (?:have to )?(?:do|try)) now",
        "(?:in|by|during) (?:dry|wet|bad|hot|cold|freezing|rainy|snowy|icy|windy|stormy|good|warm|foggy) weather",
        "(?:possible|maximum|highest|lowest|perfect|average|passing|minimum) scores?",
        "(?:the )?prices? of (?:shipping|sending|posting|delivery|postage)",
        "after what time",
        # What lasts: times of the year, how long the day is, a rule for whatever year comes next.
        "(?:what|which|best) times? of (?:the )?(?:day|year)",
        "(?:during|throughout|in|by|through) the day",
        "the moment (?:i|you|he|she|it|we|they|my|the)",
        "weather (?:and|or|vs|versus|from) climate|climate (?:\\w+ ){1,3}weather",
        "(?:winter|summer|overcast|cloudy|sunny|freezing|mild|extreme|freezing winter|any) weather",
        "(?:carr(?:y|ies|ied|ying)|roll(?:s|ed)?|transfer(?:red)?|mov(?:e|ed)|tak(?:e|en)) (?:\\w+ ){0,7}(?:in)?to"
        " (?:the )?next year",
        # What somebody has, until it is another.
        "(?:my|our|his|her|their|your|a|the) (?:\\w+ )?current (?:account|employer|job|address|home|flat|landlord|boss"
        "|manager|role|position|contract|name|school|laptop|phone|computer|car|bank|provider|team)"
        "(?! (?:balance|price|rate|offer|offers|status))",
        "(?:from|at) how old|how old to",
        "(?:bring|bringing|keep|keeping|get|stay) (?:\\w+ ){0,5}up to date",
        "(?:newest|latest|most recent) (?:first|last|to oldest)|(?:first|oldest|earliest) to (?:the )?(?:newest|latest)"
        "|at the latest",
        "(?:what to|what do i|what should i) do (?:right )?now|from now on|breaking the news",
        "(?:years|a while|a decade|decades|a year|long) ago",
    )
)  # fmt: skip
"""What holds one of those words and is not about now: taken out before they are looked for."""

SYNONYMS: Mapping[str, str] = _table(
    color="colour color", colors="colours colors", favorite="favourite favorite", organize="organise organize",
    summarize="summarise summarize", analyze="analyse analyze", center="centre center", program="programme program",
    large="big large", larger="bigger larger", largest="biggest largest", start="begin start", movie="film movie",
    movies="films movies", ok="okay ok", tv="television tv", vs="vs versus", photo="photograph photo",
    javascript="js javascript", typescript="ts typescript",
)  # fmt: skip
