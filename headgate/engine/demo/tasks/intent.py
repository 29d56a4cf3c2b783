"""The intent of a customer's message to a shop, a bank or a telephone company."""

from __future__ import annotations

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.layout import ask
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import CITIES, PURCHASES

_FRAMES: dict[str, tuple[str, ...]] = {
    "cancel_order": (
        "I want to cancel my order {id}",
        "please cancel the order of the {thing}",
        "I no longer need the {thing}, so stop the order",
        "how can I cancel order {id}",
        "I ordered the {thing} by mistake, please cancel it",
        "can I still cancel the {thing} I ordered",
        "do not send the {thing}, I changed my mind about the order",
        "please stop order {id} before you send it",
        "my order {id} should be cancelled",
        "I would like to cancel the {thing}",
        "cancel order {id}",
        "is it too late to cancel my {thing}",
    ),
    "track_order": (
        "where is my {thing}",
        "when will the {thing} arrive",
        "where is order {id} now",
        "I want to know where my order {id} is",
        "track order {id}",
        "how long does the delivery of my {thing} take",
        "has the {thing} been sent yet",
        "is order {id} on its way",
        "can I track the delivery of my {thing}",
        "on which day do I get the {thing}",
        "please tell me when order {id} will arrive",
        "I am still waiting for the {thing}, when does it come",
    ),
    "refund_request": (
        "I want my money back for the {thing}",
        "please refund order {id}",
        "how do I get a refund for the {thing}",
        "the {thing} was broken and I would like my money back",
        "I sent the {thing} back and want a refund",
        "can I get my money back for order {id}",
        "refund my {thing}",
        "I would like a refund of order {id}",
        "please give me back what I paid for the {thing}",
        "you owe me a refund for the {thing}",
        "I need a refund",
        "when do I get a refund for order {id}",
    ),
    "change_address": (
        "I need to change my address",
        "I moved to {city}, please change my address",
        "my new address is in {city}",
        "please send order {id} to my new address",
        "how do I change the address of my account",
        "I live in {city} now, so update my address",
        "the address of order {id} is wrong, please correct it",
        "can you change the delivery address of the {thing}",
        "we are moving to {city} and need a new address in your files",
        "update my address to {city}",
        "I want the {thing} sent to another address",
        "please use my address in {city} from now on",
    ),
    "reset_password": (
        "I forgot my password",
        "please reset my password",
        "how do I get a new password",
        "my password does not work",
        "I cannot log in, my password is wrong",
        "send me a link for a new password",
        "I lost the password of my account",
        "can you reset the password of account {id}",
        "I need a new password for account {id}",
        "the password I typed is not accepted",
        "I do not remember my password",
        "where can I reset my password",
    ),
    "update_payment": (
        "I want to pay with another card",
        "please change my card number",
        "I have a new bank account for the payments",
        "how do I change the way I pay",
        "my card has expired and I want to enter a new one",
        "please update my payment details",
        "can I use a different card for order {id}",
        "I would like to pay by bank transfer from now on",
        "replace the old card in account {id} with my new one",
        "I want to change my payment method",
        "from next month please take the money from my new card",
        "where can I enter my new card",
    ),
    "complaint": (
        "I am very unhappy with the {thing}",
        "your service in {city} is terrible",
        "I want to complain about the {thing}",
        "this is the worst service I have ever seen",
        "your staff in {city} was rude to me",
        "I want to make a complaint about order {id}",
        "the {thing} is of very poor quality, I am angry",
        "nobody answers my letters, this is awful",
        "I am disappointed by your shop in {city}",
        "how can I complain about the driver from {city}",
        "the {thing} is a bad product and you should be ashamed",
        "I have never been so angry about the {thing}",
    ),
    "product_question": (
        "does the {thing} come in black",
        "how heavy is the {thing}",
        "is the {thing} made of metal",
        "what size is the {thing}",
        "can I use the {thing} outside",
        "how much does the {thing} cost",
        "do you have the {thing} in blue",
        "is the {thing} easy to clean",
        "does the {thing} need a battery",
        "what is the difference between the small and the large {thing}",
        "is the {thing} good for children",
        "which colors does the {thing} have",
    ),
    "opening_hours": (
        "when does your shop in {city} open",
        "are you open on Sunday",
        "what are your opening hours",
        "when do you close today",
        "is the shop in {city} open in the evening",
        "until what time is the office in {city} open",
        "are you closed on holidays",
        "how late can I come to the shop in {city}",
        "at what time do you open in the morning",
        "what are the hours of the shop in {city}",
        "is the office open on Saturday",
        "tell me the opening hours in {city}",
    ),
    "speak_to_agent": (
        "I want to speak to a person",
        "can I talk to somebody",
        "please call me back",
        "connect me with an agent",
        "let me talk to a human",
        "is there a person I can speak to",
        "I need to talk to somebody in {city}",
        "please let an agent call me",
        "I do not want to talk to a machine",
        "can one of your people call me about order {id}",
        "give me the phone number of an agent",
        "I would rather speak to a real person about the {thing}",
    ),
    "invoice_copy": (
        "please send me the invoice again",
        "I need a copy of the invoice for the {thing}",
        "where can I find the invoice of order {id}",
        "I lost the invoice, can you send it again",
        "send me the bill for order {id}",
        "I need the bill of the {thing} for my taxes",
        "can I get an invoice for order {id}",
        "there was no invoice with the {thing}, please send one",
        "how do I download my invoice",
        "please mail the invoice to our office in {city}",
        "my boss needs the invoice for the {thing}",
        "I would like a copy of bill {id}",
    ),
    "delete_account": (
        "please delete my account",
        "I want to close my account",
        "how do I delete my account",
        "remove all my data and close account {id}",
        "close account {id}",
        "I do not want to be a customer any more, delete everything",
        "can you delete the account {id}",
        "I no longer use my account, please remove it",
        "erase my account and my data",
        "I would like to leave and close my account",
        "where can I delete my account",
        "please end my membership and delete my data",
    ),
    "lost_card": (
        "I lost my card",
        "my card was stolen in {city}",
        "please block my card, it is gone",
        "somebody took my bank card",
        "I cannot find my card, so block it",
        "my card is missing since my trip to {city}",
        "I left my card in {city}, what should I do",
        "block card {id}, it was stolen",
        "how do I report a lost card",
        "a thief has my card",
        "my purse was stolen and my card was in it",
        "I think I lost card {id} on the bus",
    ),
    "technical_problem": (
        "my internet does not work",
        "the app crashes when I open it",
        "the {thing} does not turn on",
        "there is no signal in {city}",
        "your website shows an error",
        "the {thing} stopped working",
        "my phone has no network in {city}",
        "the page with the {thing} does not load",
        "the internet is very slow today",
        "the screen stays black when I start the {thing}",
        "I get error {id} in the app",
        "the connection breaks every hour",
    ),
}
INTENTS = tuple(_FRAMES)
"""The labels, in a fixed order."""

_PADS = (
    "Hello, {}",
    "Hi team, {}",
    "Good morning, {}",
    "Hey, a quick question: {}",
    "I have been a customer for years. {}",
    "Sorry to bother you, {}",
    "Dear team, {}",
    "{}, thank you",
    "{}, thanks in advance",
    "I hope you can help me. {}",
    "I have a short request: {}",
    "Good evening. {}",
    "Hello, my account is {id}. {}",
    "I am writing from {city}. {}",
)
_SOLVED = (
    ("refund_request", "My refund for the {other} arrived, thanks."),
    ("refund_request", "I already got my money back for the {other}."),
    ("track_order", "The {other} arrived yesterday, all is well."),
    ("track_order", "Order {id} came on time last week, thanks."),
    ("cancel_order", "You already cancelled order {id}, thanks for that."),
    ("cancel_order", "The order of the {other} was cancelled last week."),
    ("change_address", "You already have my new address, thanks."),
    ("change_address", "My address was changed last month."),
    ("reset_password", "The new password works now, thanks."),
    ("reset_password", "The trouble with my password is solved."),
    ("update_payment", "My new card was accepted, thanks."),
    ("update_payment", "You already have my new payment details."),
    ("complaint", "My complaint of last year is settled."),
    ("product_question", "You already told me the size of the {other}."),
    ("opening_hours", "I already found your opening hours."),
    ("speak_to_agent", "Your agent called me yesterday, thanks."),
    ("invoice_copy", "The invoice for the {other} arrived, thank you."),
    ("invoice_copy", "I already have the bill for order {id}."),
    ("delete_account", "My old account was deleted last month, that is fine."),
    ("lost_card", "I found my lost card again."),
    ("technical_problem", "The app works again, thanks."),
    ("technical_problem", "The problem with the internet was solved yesterday."),
)
_NOW = ("Now {}", "Today {}", "But now: {}", "Here is another matter: {}", "{}", "Next thing: {}")
_QUESTIONS = ("when ", "where ", "how ", "what ", "which ", "is ", "are ", "can ", "does ", "do you ", "has ", "until ",
              "at what ", "on which ")  # fmt: skip
_INTENT = (
    "Classify the intent of this message",
    "What does the customer want? Name the intent.",
    "Intent:",
    "What is the intent of this message?",
    "Which intent does this customer message have?",
    "Customer: {text}\nIntent:",
    "Label the intent of this request",
    "Read the message and name its intent. {text}",
    "Find the intent of the customer in this message",
    "Customer message: {text}\nWhat is the intent?",
    "Tell me the intent of this customer",
    "Which intent fits this message?",
    "Give the intent of the following message: {text}",
    "Choose the intent of this message",
    "Name the intent of this message",
    "Say which intent this customer message has",
    "Message: {text}\nWhich intent is this?",
    "Tell me which intent this message has",
    "What is the intent of this customer?",
    "Read this customer message and give the intent:",
)
_CHOICES = ("Intents: {}", "Choose from: {}", "Labels: {}", "Choose one: {}", "Possible intents: {}")


def intent(draw: Draw) -> Task:
    """What a customer wants. Level 1: the plain wish; 2: with polite words; 3: after another matter that is settled.

    Level 4: after two other matters that are settled.
    """
    label = draw.pick(INTENTS)
    frame = draw.pick(_FRAMES[label])
    thing, other = draw.values(PURCHASES, 2)
    slots = {"thing": thing, "other": other, "city": draw.value(CITIES), "id": _identifier(draw)}
    if draw.level == 1:
        text = _sentence(frame)
    elif draw.level == 2:
        text = _padded(draw, _sentence(frame))
    else:
        past = _settled(draw, {label}, 2 if draw.level == BEYOND else 1)
        joined = draw.pick(_NOW)
        # "Now where is my lamp" would need a pause, so only statements follow such a word directly.
        if joined[0] != "{" and not joined.endswith(": {}") and not frame.startswith(("I ", "my ", "the ", "we ")):
            joined = "Next thing: {}"
        text = f"{past} {joined.format(_sentence(frame, small=joined[0] != '{'))}"
        if draw.chance(0.3):
            text = _padded(draw, text)
    text = text.format(**slots)
    prompt = ask(draw, _INTENT, text, quotes=True)
    if draw.styled(0.4):
        prompt = _with_choices(draw, prompt, label)
    return Task(prompt, label, text)


def _settled(draw: Draw, without: set[str], count: int) -> str:
    """Sentences about that many settled matters, of as many labels."""
    sentences: list[str] = []
    labels = {*without}
    for _ in range(count):
        label, sentence = draw.pick([(label, sentence) for label, sentence in _SOLVED if label not in labels])
        labels.add(label)
        sentences.append(sentence)
    return " ".join(sentences)


def _identifier(draw: Draw) -> str:
    digits = "".join(str(draw.number(0, 9)) for _ in range(draw.number(3, 5)))
    return draw.pick(("", "", "A", "B", "K", "X")) + digits


def _sentence(frame: str, *, small: bool = False) -> str:
    mark = "?" if frame.startswith(_QUESTIONS) else "."
    return (frame if small else frame[0].upper() + frame[1:]) + mark


def _padded(draw: Draw, text: str) -> str:
    pad = draw.pick(_PADS)
    if pad.startswith("{}"):
        return text[:-1] + pad[2:] + text[-1]
    before = pad.removesuffix("{}")
    if not before.endswith(". ") and not text.startswith("I "):
        text = text[0].lower() + text[1:]
    return before + text


def _with_choices(draw: Draw, prompt: str, label: str) -> str:
    """Some of the labels, the right one among them, before or after the prompt."""
    shown = {label}
    count = draw.style((3, 4, 5, 6))
    while len(shown) < count:
        shown.add(draw.style(INTENTS))
    order: list[str] = []
    rest = sorted(shown)
    while rest:
        order.append(draw.style(rest))
        rest.remove(order[-1])
    line = draw.style(_CHOICES).format(", ".join(order))
    return f"{line}\n{prompt}" if draw.styled(0.4) else f"{prompt}\n{line}"
