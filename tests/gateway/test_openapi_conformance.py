"""Schemathesis over our own description: no 5xx, and every reply is as `/openapi.json` says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from aiohttp import web
from gateway_site import forget_environment
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks

from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.settings import Settings
from headgate.gateway.wire.openapi.passthrough import passed_paths

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


class Served:
    """An application in an event loop of its own thread: Schemathesis asks as any client does, and waits."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.url = ""

    def __enter__(self) -> Served:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        app = make_app(self._settings)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await app[keys.LIFECYCLE].wait_until_ready()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()


@pytest.fixture(scope="module")
def served(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        model: dict[str, Any] = {"path": str(tiny_checkpoint), "context_length": 48}
        chosen: dict[str, Any] = {
            "models": [{"id": "tiny", "tier": "small", **model}, {"id": "tiny-2", "tier": "large", **model}],
            "cache": {"semantic": {"enabled": False}, "redis": "off"},
            "engine": {"device": "cpu", "kv_bytes": 8 * 1024 * 1024, "threads": 1},
            # The first key would close the server.
            "teams": {"folder": None},
            "storage": {"folder": str(tmp_path_factory.mktemp("data"))},
        }
        with Served(Settings(**chosen)) as running:
            yield running


ASK = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
GOOD: dict[str, list[dict[str, Any]]] = {
    "POST /v1/chat/completions": [
        {"body": {"model": "tiny", "messages": ASK, "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "n": 2}},
        {"body": {"model": "auto", "messages": ASK, "max_tokens": 4, "tools": [TOOL]}},
        {"body": {"model": "tiny", "messages": ASK, "max_tokens": 4, "stream": True}},
    ],
    "POST /v1/completions": [{"body": {"model": "tiny", "prompt": ["a", "b"], "max_tokens": 4, "logprobs": 1}}],
    "POST /v1/embeddings": [{"body": {"model": "all-minilm-l6-v2", "input": ["a", "b"]}}],
    "POST /v1/messages": [
        {"body": {"model": "tiny", "messages": ASK, "max_tokens": 4, "stream": stream}} for stream in (False, True)
    ],
    "POST /v1/messages/count_tokens": [{"body": {"model": "tiny", "messages": ASK}}],
    "POST /v1/responses": [
        {"body": {"model": "tiny", "input": "hello", "max_output_tokens": 16, "stream": stream}}
        for stream in (False, True)
    ],
    "POST /tokenize": [{"body": {"model": "tiny", "prompt": "a b"}}, {"body": {"model": "tiny", "messages": ASK}}],
    "POST /detokenize": [{"body": {"model": "tiny", "tokens": [40, 41]}}],
    "POST /admin/route": [{"body": {"model": "auto", "messages": ASK}}],
    "POST /admin/cache/invalidate": [{"body": {"all": True}}],
    **{f"POST /admin/models/{what}": [{"body": {"model": "tiny"}}] for what in ("sleep", "wake")},
}
EXAMPLES = 4
NEVER = {
    "GET /admin/cache/audits",
    "GET /admin/cache/labels",
    "POST /admin/cache/lift",
    "POST /v1/batches/{batch_id}/cancel",
    "POST /admin/keys",
    "POST /admin/keys/rotate",
    "POST /admin/keys/revoke",
    "POST /admin/adapters",
    "POST /admin/adapters/remove",
    *(f"POST {path}" for path in passed_paths()),
}
"""Nothing is served by meaning here, so that there are no audits; what there is of batches has ended; there is no
folder for teams; no adapter of the model; and no upstream, whose answers would be its own."""


def known(case: Any, names: dict[str, str]) -> Any:
    """The case about things that there are: nobody guesses a model's name or a file's id."""
    for name in case.path_parameters or {}:
        case.path_parameters[name] = names[name]
    if isinstance(case.body, dict):
        for name in case.body.keys() & names.keys():
            case.body[name] = names[name]
    return case


def made(url: str) -> dict[str, str]:
    """Ids of what there is."""
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}}
    file = requests.post(f"{url}/v1/files", data={"purpose": "batch"}, files={"file": json.dumps(line)}, timeout=30)
    ask = {"input_file_id": file.json()["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch = requests.post(f"{url}/v1/batches", json=ask, timeout=30)
    response = requests.post(
        f"{url}/v1/responses",
        json={"model": "tiny", "input": "hello", "max_output_tokens": 4, "background": True, "stream": True},
        timeout=30,
    )
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    answer_id = events[-1]["response"]["id"]
    requests.post(f"{url}/v1/feedback", json={"id": answer_id, "good": True}, timeout=30)
    return {
        "model": "tiny",
        "id": answer_id,
        "answer_id": answer_id,
        "input_file_id": file.json()["id"],
        "file_id": file.json()["id"],
        "batch_id": batch.json()["id"],
        "response_id": answer_id,
        "request_id": response.headers["x-request-id"],
    }


def test_replies_are_as_described(served: Served) -> None:
    description = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    names = made(served.url)
    answered, failures = set[str](), list[str]()

    def ask(case: Any) -> None:
        reply = case.call_and_validate(checks=CHECKS, timeout=30)
        check_events(case, reply.text, description.raw_schema)
        if reply.status_code == 200:
            answered.add(case.operation.label)

    operations = [found.ok() for found in description.get_all_operations()]
    # What deletes comes last.
    for operation in sorted(operations, key=lambda operation: operation.method == "delete"):
        try:
            for good in GOOD.get(operation.label, []):
                ask(operation.Case(**good, media_type="application/json"))
            fuzz(operation, GenerationMode.POSITIVE, names, ask)
            # Nothing can be wrong about a request with nothing but a name in its path.
            if operation.query or operation.headers or operation.body:
                fuzz(operation, GenerationMode.NEGATIVE, names, ask)
        except (Exception, BaseExceptionGroup) as error:
            failures.append(f"{operation.label}: {error}")
    assert not failures, "\n\n".join(failures)
    silent = {operation.label for operation in operations} - answered - NEVER
    assert not silent, "each answers something, so that its reply is seen: add a good request to GOOD"


def check_events(case: Any, text: str, document: dict[str, Any]) -> None:
    """What a stream says, by the schema of its events: Schemathesis looks at their form only."""
    if not text.startswith(("data: ", "event: ")):
        return
    content = case.operation.definition.raw["responses"]["200"]["content"]["text/event-stream"]
    data = content["schema"]["properties"]["data"]
    expected = data.get("contentSchema") or data["anyOf"][1]["contentSchema"]
    validator = jsonschema_rs.validator_for({**expected, "components": document["components"]})
    for said in text.splitlines():
        if said.startswith("data: {"):
            validator.validate(json.loads(said.removeprefix("data: ")))


def fuzz(operation: Any, mode: GenerationMode, names: dict[str, str], ask: Callable[[Any], None]) -> None:
    """Ask what the description allows, or what it does not."""
    cases = operation.as_strategy(generation_mode=mode)
    if mode is GenerationMode.POSITIVE:
        cases = cases.map(lambda case: known(case, names))

    @given(case=cases)
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    def each(case: Any) -> None:
        ask(case)

    each()
