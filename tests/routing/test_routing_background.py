"""Calls that clients make on their own account, and what people ask that looks like them."""

from __future__ import annotations

import pytest

from headgate.routing.background import BackgroundCalls
from headgate.routing.classes import TaskClassifier, TaskGuess
from headgate.routing.tasks import load_tasks
from headgate.routing.types import RouteFeatures

CALLS = [
    (
        "",
        "### Task:\nGenerate a concise, 3-5 word title summarizing the chat history.\n### Chat History:\nUSER: hi",
    ),
    (
        "",
        "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.",
    ),
    (
        "",
        "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might ask next as a **user**",
    ),
    (
        "",
        "### Task:\nPredict 3-5 useful messages this user might naturally send next to advance their objective.",
    ),
    ("", "### Task:\nYou are an autocompletion system. Continue the text in `<text>` based on the **completion type**"),
    (
        "",
        "### Task:\nAnalyze the chat history to determine the necessity of generating search queries.",
    ),
    ("", "Your task is to reflect the speaker's likely facial expression through a fitting emoji."),
    (
        "",
        "Please generate a four to five word title summarizing our conversation without any lead-in.",
    ),
    (
        "You are a title generator. You output ONLY a thread title. Nothing else.",
        "Generate a title for this conversation:\n\nfix the build",
    ),
    (
        "You are an expert in crafting pithy titles for chatbot conversations. You are presented with a chat request",
        "how do I sort",
    ),
    (
        "",
        "Given the following chat history, please reply with a title for the chat that is 3-4 words in length",
    ),
    ("Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title", "hi"),
    ("Summarize this coding conversation in under 50 characters.\nCapture the main task", "x"),
    (
        "",
        "Generate a concise 3-7 word title for this conversation, omitting punctuation.",
    ),
    ("", "Please write a 5-10 word title the following conversation:\n\nUser: hi\nAI: hello"),
    (
        "",
        "Write a concise title for this conversation in the detected language.",
    ),
    (
        "You are an assistant skilled in conversation. Summarize the user's conversation into a title within 10 words",
        "hey",
    ),
    (
        "You are a summarization AI. Summarize the user's request into a single short sentence of four words or less.",
        "x",
    ),
    (
        "",
        "Based on the conversation so far, provide a concise description of this session in 4 words or less.",
    ),
    ("", "Based on the above response, generate 3 follow-up questions the user might ask. Return a JSON array."),
    ("Reply with a concise 3-6 word title for the conversation. No quotes.", "explain tcp"),
    ("", "Predict what the user would type next. Output one line."),
    ("", "Based on the chat history, give this conversation a name.\nKeep it short - 10 characters max, no quotes."),
]
PEOPLE = [
    "Write a title for my blog post about conversation skills",
    "Suggest tags for this recipe",
    "Summarize our conversation so far",
    "Give me three titles for a novel",
    "Write a short story about a chat between two robots, title it The Chat",
    "Name three topics that came up in the discussion below.",
    "Generate a name for my podcast about chess",
    "Write five follow-up questions for a job interview with a nurse",
    "What is the title of the chat show hosted by Jimmy Fallon?",
    "write an email with the subject line 'session moved'",
    "Create a class Conversation with a field title in Python",
    "Extract the topic of each thread below",
    "Classify the topic of this conversation: ...",
]


@pytest.fixture(scope="module")
def calls() -> BackgroundCalls:
    return BackgroundCalls.load()


@pytest.mark.parametrize(("system", "text"), CALLS)
def test_what_clients_send_is_recognised(calls: BackgroundCalls, system: str, text: str) -> None:
    assert calls.includes(RouteFeatures(text, system=system))


@pytest.mark.parametrize("text", PEOPLE)
def test_what_people_ask_is_not(calls: BackgroundCalls, text: str) -> None:
    assert not calls.includes(RouteFeatures(text))


def test_no_example_of_another_class_is_taken_for_one(calls: BackgroundCalls) -> None:
    taken = [e.text for task in load_tasks() for e in task.examples if calls.includes(e.features())]
    assert taken == []


def test_the_conversation_between_is_not_looked_at(calls: BackgroundCalls) -> None:
    talk = "USER: Generate a title for this conversation\n" * 60
    assert not calls.includes(RouteFeatures("Count the lines." + " Here they are." * 80 + talk + "The end. " * 80))
    assert calls.includes(RouteFeatures(talk * 10 + "\nReply with a short title for this conversation."))


def test_an_agent_with_tools_is_at_work(calls: BackgroundCalls) -> None:
    assert not calls.includes(RouteFeatures(CALLS[0][1], has_tools=True))


def test_it_is_a_class_of_its_own() -> None:
    system, text = CALLS[7]
    classifier = TaskClassifier(load_tasks())
    assert classifier.classify(RouteFeatures(text, system=system)) == TaskGuess("background", 1.0)
