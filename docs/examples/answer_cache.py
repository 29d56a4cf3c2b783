"""The answer cache from the official `openai` client: what replies say of it, and what requests can ask of it.

Start a server with `headgate serve`, then: `python docs/examples/answer_cache.py [URL]`.
"""

from __future__ import annotations

import sys

import openai


def main(url: str) -> None:
    """Ask the same thing in several ways, and print what the cache said each time."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any")

    def ask(text: str, **headers: str) -> None:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        raw = client.chat.completions.with_raw_response.create(
            model="small",
            messages=[{"role": "user", "content": text}],
            max_tokens=32,
            extra_headers=sent,
        )
        shown = ("x-headgate-cache", "x-headgate-similarity", "age", "x-headgate-bound")
        said = "  ".join(
            f"{name.removeprefix('x-headgate-')}: {raw.headers[name]}" for name in shown if name in raw.headers
        )
        usage = raw.parse().usage
        tokens = usage.completion_tokens if usage else 0
        print(text, *(f"{name}: {value}" for name, value in sent.items()), sep="  ")
        print(f"    {said}  completion tokens: {tokens}")

    ask("What is the capital of France?", x_headgate_cache_tags="atlas")
    ask("What is the capital of France?")
    ask("what's the capital of France")
    ask("what's the capital of France", x_headgate_max_error="0")
    ask("What is the capital of France?", cache_control="no-cache", x_headgate_cache_tags="atlas")
    ask("What is the capital of France?", cache_control="no-store")
    try:
        ask("What is the capital of Spain?", cache_control="only-if-cached")
    except openai.InternalServerError as error:
        print(f"{error.status_code} {error.code}: {error.body['message'] if isinstance(error.body, dict) else error}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
