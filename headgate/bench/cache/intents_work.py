"""What people ask at work: calendars, writing, reports."""

from __future__ import annotations

from headgate.bench.cache.slots import choice
from headgate.bench.cache.vocabulary import (
    CLOCK,
    COLLEAGUES,
    COMPANIES,
    DATES,
    DAYS,
    FILE_FORMATS,
    LANGUAGES,
    LENGTHS_OF_TEXT,
    MONTHS,
    SHORT_TIMES,
    SMALL,
    TOPICS,
    WEEKDAYS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "calendar.schedule",
        """
        [schedule|set up|book] a meeting with {person} on {weekday} at {clock} for {time}
        please put a meeting of {time} with {person} in my calendar for {weekday}, {clock}
        I'd like to meet {person} on {weekday} at {clock} for {time}. Please book it
        meeting {person} {weekday} {clock} {time}
        can you [arrange|schedule] {time} with {person} on {weekday}, starting at {clock}?
        on {weekday} at {clock} I want to see {person} for {time}, add that to my calendar
        block {time} for a meeting with {person}, {weekday} at {clock}
        find room for {person} in my calendar: {weekday}, {clock}, {time}
        """,
        person=COLLEAGUES,
        weekday=WEEKDAYS,
        clock=CLOCK,
        time=SHORT_TIMES,
    ),
    intent(
        "calendar.move",
        """
        [move|reschedule] my meeting with {person} from {old} to {new}
        my meeting with {person} is on {old}. Please make it {new}
        meeting {person} {old} to {new}
        can you shift the meeting with {person} from {old} to {new}?
        I can't make it on {old}, so [move|put] the meeting with {person} to {new}
        instead of {old}, I'd like to meet {person} on {new}
        the meeting with {person} should be on {new} and not on {old}
        please change the day of my meeting with {person} from {old} to {new}
        """,
        roles="old new",
        person=COLLEAGUES,
        old=WEEKDAYS,
        new=WEEKDAYS,
    ),
    intent(
        "calendar.free",
        """
        is {person} free {order} {clock} on {day}?
        does {person} have time {order} {clock} on {day}?
        {person} available {day} {order} {clock}?
        can you check whether {person} is [free|available] on {day} {order} {clock}?
        I want to meet {person} on {day} {order} {clock}. Is there a free slot?
        on {day}, is {person}'s calendar open {order} {clock}?
        {order} {clock} on {day}, would {person} be [free|available]?
        find out if {person} has a gap in the calendar {order} {clock} on {day}
        """,
        person=COLLEAGUES,
        order=choice("temporal order", "before; after"),
        clock=CLOCK,
        day=DAYS,
    ),
    intent(
        "calendar.remind",
        """
        remind me to {task} {time} {order} my {event}
        set a reminder to {task} {time} {order} the {event}
        {time} {order} my {event}, I want to be reminded to {task}
        reminder: {task}, {time} {order} {event}
        I must not forget to {task} {time} {order} my {event}. Please remind me
        can you [alert|remind] me {time} {order} the {event} that I have to {task}?
        please make a note that pops up {time} {order} the {event} and tells me to {task}
        when it's {time} {order} the {event}, tell me to {task}
        """,
        task=choice(
            "entity",
            "call the bank|phone the bank; take my pills|take my medication; feed the cat; buy flowers; "
            "pay the rent; send the report; "
            "water the plants; charge my phone; pick up the kids; print the tickets",
        ),
        time=SHORT_TIMES,
        order=choice("temporal order", "before; after"),
        event=choice(
            "entity",
            "dentist appointment; flight; yoga class; job interview; lunch break|lunch; team meeting; "
            "driving lesson; exam",
        ),
    ),
    intent(
        "calendar.invite",
        """
        invite {scope} {person} to the {event} on {day}
        send an invitation for the {event} on {day} to {scope} {person}
        {event} {day} invite {scope} {person}
        please ask {scope} {person} to [come to|join] the {event} on {day}
        I want {scope} {person} at the {event} on {day}. Send out the invitation
        for the {event} on {day}, put {scope} {person} on the guest list
        the {event} is on {day} and {scope} {person} should get an invitation
        on {day} we have the {event}; can you invite {scope} {person}?
        """,
        scope=choice(
            "exception", "except=everyone except|everybody but|the whole team apart from; only=only|just|nobody but"
        ),
        person=COLLEAGUES,
        event=choice(
            "entity",
            "kick-off; retrospective; budget review; launch party; training|training session; farewell lunch; "
            "all-hands",
        ),
        day=DAYS,
    ),
    intent(
        "calendar.answer_invitations",
        """
        {action} {which} invitations from {person} for {month}
        please {action} {which} invitations that {person} sent for {month}
        {month}: please {action} {which} requests I got from {person}
        {month} {action} {which} invitations {person}
        I'd like you to {action} {which} meeting requests from {person} in {month}
        can you {action} {which} meeting invites that {person} sent for {month}?
        in {month}, {action} {which} requests that came from {person}
        for {month}: {action} {which} invitations by {person}, please
        """,
        action=choice("antonym", "accept=accept|say yes to; decline=decline|turn down|say no to"),
        which=choice(
            "quantifier",
            "all=all the|every one of the; half=half of the|one half of the; the first two|the first 2; "
            "the last two|the last 2",
        ),
        person=COLLEAGUES,
        month=MONTHS,
    ),
    intent(
        "writing.summarise",
        """
        [summarise|summarize|sum up] {doc} in {count} {unit}
        give me a summary of {doc} in {count} {unit}
        {doc} summary {count} {unit}
        I need a(n) {count:numeral}-{unit:one} summary of {doc}
        can you [boil|condense] {doc} down to {count} {unit}?
        what does {doc} say? Answer in {count} {unit}
        in {count} {unit}, what is {doc} about?
        please write a summary of {doc} that has {count} {unit}
        I don't have time to read {doc}, so tell me what's in it in {count} {unit}
        """,
        doc=choice(
            "entity",
            "the attached report; the meeting notes|the minutes of the meeting; "
            "the customer email|the customer's email; the contract; "
            "chapter one|the first chapter; the press release; the user manual|the manual; the court ruling; "
            "the survey results; the job advert|the job ad",
        ),
        count=LENGTHS_OF_TEXT,
        unit=choice(
            "format",
            "sentences  ~one sentence; bullet points  ~one bullet; paragraphs  ~one paragraph; lines  ~one line; "
            "pages  ~one page",
        ),
    ),
    intent(
        "writing.translate",
        """
        translate {doc} from {old} [to|into] {new}
        I have {doc} in {old} and need it in {new}
        {doc} {old} to {new} translation
        please [turn|put] {doc} from {old} into {new}
        can you give me a(n) {new} version of {doc}, which is in {old}?
        {doc} is written in {old}. What would it be in {new}?
        I need a translation of {doc} into {new}; the original is {old}
        could you help me get {doc} out of {old} and into {new}?
        """,
        roles="old new",
        doc=choice(
            "entity",
            "this letter; this menu|this restaurant menu; this poem; this contract; this love song; this manual; "
            "this recipe; this birth certificate; "
            "this diploma; this wedding speech",
        ),
        old=LANGUAGES,
        new=LANGUAGES,
    ),
    intent(
        "writing.email",
        """
        write a(n) {tone} email to my {reader} {action:ing} {matter}
        I need a(n) {tone} email to my {reader} that {action:s} {matter}
        {tone} email {reader} {action} {matter}
        help me {action} {matter} in a(n) {tone} email to my {reader}
        can you draft a(n) {tone} message to my {reader} to {action} {matter}?
        my {reader} is waiting for an answer: please {action} {matter} in a(n) {tone} email
        compose a(n) {tone} reply to my {reader} in which I {action} {matter}
        to my {reader}, please: a(n) {tone} email {action:ing} {matter}
        """,
        tone=choice("format", "formal; casual|informal; funny|humorous; poetic"),
        reader=choice(
            "person",
            "boss|manager; landlord; client|customer; professor; neighbour|neighbor; lawyer|attorney; "
            "doctor|physician; accountant",
        ),
        action=choice(
            "antonym",
            "accept|agree to ~ing accepting|agreeing to ~s accepts|agrees to;"
            "reject|decline ~ing rejecting|declining ~s rejects|declines",
        ),
        matter=choice(
            "entity",
            "a new deadline; a price increase; a job offer; a dinner invitation; a settlement; a change of plans; "
            "an extension",
        ),
    ),
    intent(
        "writing.explain",
        """
        explain {topic} to {reader} in {language}
        in {language}, explain {topic} to {reader}
        {topic} explained to {reader} {language}
        how would you explain {topic} to {reader} in {language}?
        I have to explain {topic} to {reader}. Please write it in {language}
        please give {reader} an explanation of {topic} in {language}
        what's a good {language} explanation of {topic} for {reader}?
        write a(n) {language} text that makes {reader} understand {topic}
        """,
        topic=TOPICS,
        reader=choice(
            "aspect",
            "a child|a small child; an engineer; a high-school student|a high schooler; a politician; a journalist",
        ),
        language=LANGUAGES,
    ),
    intent(
        "writing.facts",
        """
        give me {count} facts about {topic} as {format}
        [list|write down] {count} facts about {topic} in the form of {format}
        {count} facts {topic} {format}
        I want {count} facts on {topic}, formatted as {format}
        can you present {count} facts about {topic} as {format}?
        as {format}, please tell me {count} facts about {topic}
        what are {count} facts about {topic}? Answer with {format}
        put {count} facts about {topic} into {format}
        """,
        count=SMALL,
        topic=TOPICS,
        format=choice(
            "format",
            "bullet points|a bullet list|a bulleted list; a table; a JSON array|a JSON list; "
            "a numbered list|an enumerated list; a poem; an email|an e-mail; a dialogue|a conversation",
        ),
    ),
    intent(
        "writing.poem",
        """
        write a poem of {count} lines about {topic} {rhyme} rhymes
        I'd like a(n) {count:numeral}-line poem about {topic}, {rhyme} rhymes
        poem {topic} {count} lines {rhyme} rhymes
        can you [compose|make up] {count} lines of verse on {topic} {rhyme} rhymes?
        {topic}: please make a poem {rhyme} rhymes out of it, {count} lines long
        a poem {rhyme} rhymes on {topic}, with {count} lines, please
        {count} lines of poetry about {topic} {rhyme} rhymes, can you do that?
        compose a poem {rhyme} rhymes that has {count} lines and deals with {topic}
        """,
        count=LENGTHS_OF_TEXT,
        topic=TOPICS,
        rhyme=choice("negation", "with; without"),
    ),
    intent(
        "writing.describe",
        """
        describe {company} in {count} {unit} and in {language}
        write {count} {unit} in {language} about {company}
        {company} description {count} {unit} {language}
        in {language}, please describe {company} using {count} {unit}
        I need a description of {company}: {count} {unit}, in {language}
        what does {company} do? Answer in {language} with {count} {unit}
        please write about {company} in {language}. It should be {count} {unit} long
        can you tell me in {count} {unit} what {company} does, in {language}?
        """,
        company=COMPANIES,
        count=LENGTHS_OF_TEXT,
        unit=choice("format", "sentences; words; paragraphs; lines"),
        language=LANGUAGES,
    ),
    intent(
        "office.export",
        """
        how do I export the {report} report for {date} as {format}?
        export the {report} report for {date} to {format}
        {report} report {date} {format} export
        I need the {report} report of {date} in {format} format
        can I get the {report} report for {date} as {format}?
        where do I [download|save] the {report} report of {date} as {format}?
        please give me the {report} report dated {date} in {format}
        the {report} report for {date} has to be saved as {format}. How?
        """,
        report=choice(
            "entity", "sales; inventory|stock; attendance; traffic; billing; incident|incidents; energy; quality"
        ),
        date=DATES,
        format=FILE_FORMATS,
    ),
)
