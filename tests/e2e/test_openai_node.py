"""A session of OpenAI's client for Node, where Node is there and npm can bring the client."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from server_process import run_server

CLIENT = "openai@6"
NODE, NPM = shutil.which("node"), shutil.which("npm")


@pytest.mark.skipif(NODE is None or NPM is None, reason="Node is not installed")
def test_a_session_of_the_client_for_node(tmp_path: Path) -> None:
    assert NODE is not None
    assert NPM is not None
    try:
        brought = subprocess.run(
            [NPM, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tmp_path), CLIENT],
            capture_output=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not bring the client in a minute")
    if brought.returncode:
        pytest.skip("npm cannot bring the client here")
    script = Path(__file__).with_name("openai_session.mjs")
    with run_server(tmp_path) as server:
        done = subprocess.run(
            [NODE, str(script), server.url, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["chat"]
    assert told["streamed"] == told["chat"]
    assert told["call"]["name"] == "switch_light_state"
    assert json.loads(told["call"]["arguments"]) == {"place": "garden", "status": "on"}
    assert told["finish"] == "tool_calls"
    assert json.loads(told["answer"])["place"] in ("garden", "kitchen")
    assert told["refused"] == {"status": 404, "code": "model_not_found", "kind": "NotFoundError"}
    assert {"demo-student", "demo-teacher"} <= set(told["models"])
