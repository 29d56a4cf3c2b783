"""The official OpenAI client against a running `make serve`: `python docs/examples/first_steps.py`."""

from __future__ import annotations

import openai

client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")


def ask(question: str, model: str = "auto") -> None:
    """Ask, and show what the reply's headers say of it."""
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": question}]
    )
    reply, headers = raw.parse(), raw.headers
    print(f"> {question}")
    print(reply.choices[0].message.content)
    print(
        f"  [{headers['x-headgate-model']} · {headers['x-headgate-route']} · cache {headers['x-headgate-cache']} · "
        f"{headers['openai-processing-ms']} ms]\n"
    )


ask("What is the capital of Norway?")
ask("What is the capital of Norway?")
ask("what's Norway's capital?")
ask("What is the capital of Sweden?")
ask("Is this review positive or negative? I loved this film.")
ask("Put these words in alphabetical order: pear, apple, fig", model="large")
ask("Write a Python function that reverses a list.")

print("> streamed")
with client.chat.completions.create(
    model="small",
    messages=[{"role": "user", "content": "What is the capital of Japan?"}],
    stream=True,
    stream_options={"include_usage": True},
) as stream:
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="|")
        if chunk.usage is not None:
            print(f"\n  [{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens]\n")

for wrong in ({"model": "gpt-4"}, {"temperature": 9}):
    try:
        request = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}], **wrong}
        client.chat.completions.create(**request)
    except openai.APIStatusError as error:
        print(f"{type(error).__name__} {error.status_code}: {error.body['message']} (param {error.body['param']})")
