"""docker-compose.yml and the Dockerfile: no Docker runs here, so that they are checked by their schema and by rules."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from stack_files import ROOT, compose

SERVICES = compose()["services"]
OWN = ("gateway", "gateway-gpu")
BUILD_TOOLS = r"\b(apt-get|apk|gcc|g\+\+|clang|make|cmake|git|curl|pip install|python3?-dev|build-essential)\b"


def stages() -> dict[str, tuple[str, list[str]]]:
    """Of each stage of the Dockerfile its base and its instructions, each in one line."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    found: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if begin := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            lines = []
            found[begin[2]] = (begin[1], lines)
        elif line and not line.startswith("#"):
            lines.append(line.strip())
    return found


def image(target: str) -> list[str]:
    """The instructions that make an image, those of the stages it is based on first."""
    known = stages()
    base, own = known[target]
    return [*(image(base) if base in known else []), *own]


def test_the_compose_file_follows_the_specification() -> None:
    read = PyCompose.from_json(json.dumps(compose()))
    read.validate()
    assert set(read.service_names()) == {*OWN, "redis", "prometheus", "grafana"}
    with pytest.raises(ValueError, match="profils"):
        PyCompose.from_json(json.dumps({"services": {"a": {"image": "b:1", "profils": ["cpu"]}}}))


def test_each_profile_has_one_gateway_beside_what_both_have() -> None:
    def started(profile: str) -> set[str]:
        return {name for name, service in SERVICES.items() if profile in service.get("profiles", [profile])}

    common = {"redis", "prometheus", "grafana"}
    assert (started("cpu"), started("gpu")) == (common | {"gateway"}, common | {"gateway-gpu"})
    assert SERVICES["gateway-gpu"]["networks"]["clients"]["aliases"] == ["gateway"], "Prometheus asks for that name"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_write_and_be_reached_only_where_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
    if name not in OWN:
        assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+\S*", service["image"]), "a version, whole"
        check = service["healthcheck"]["test"]
        # Docker hands containers the proxies of its client's configuration.
        assert check[:2] != ["CMD", "wget"] or check[2:4] == ["-Y", "off"], "this machine is asked without a proxy"
    for variable in service.get("environment", {}):
        assert not re.search("PASSWORD|SECRET|KEY", variable) or variable.endswith("__FILE"), "secrets are files"


def test_redis_is_reached_by_gateways_only() -> None:
    assert compose()["networks"]["stores"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "stores" in service["networks"]} == {*OWN, "redis"}
    assert "ports" not in SERVICES["redis"]


def test_what_is_mounted_is_there() -> None:
    top = compose()
    secrets = {name: PurePosixPath(secret["file"]) for name, secret in top["secrets"].items()}
    made = re.search(r"for name in ([\w ]+);", (ROOT / "Makefile").read_text())
    assert made is not None
    assert {path.name for path in secrets.values()} == set(made[1].split()), "make secrets makes them"
    for service in SERVICES.values():
        assert set(service.get("secrets", [])) <= set(secrets)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in top["volumes"]


def test_the_gateway_is_told_of_what_the_stack_has() -> None:
    config = yaml.safe_load((ROOT / "config/stack/headgate.yaml").read_text())
    gateway = SERVICES["gateway"]
    targets = {volume.split(":")[1] for volume in gateway["volumes"]}
    assert config["cache"]["redis"] == "redis://redis:6379"
    for folder in (config["storage"]["folder"], config["teams"]["folder"]):
        assert str(PurePosixPath(folder).parent) in targets
    team = yaml.safe_load((ROOT / "config/stack/teams/operators.yaml").read_text())
    references = [config["cache"]["secret"], *(key["secret"] for key in team["keys"])]
    assert [r.removeprefix("file:/run/secrets/") for r in references] == gateway["secrets"][::-1]
    seconds = int(gateway["stop_grace_period"].removesuffix("s"))
    assert config["server"]["drain_s"] < seconds, "requests end before the container is killed"


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_runs_as_nobody_special_and_brings_no_build_tools(target: str) -> None:
    lines = image(target)
    commands = [line for line in lines if line.startswith("RUN")]
    tools = [c for c in commands if re.search(BUILD_TOOLS, c)]
    # Triton compiles what launches its kernels where they run: that takes a C compiler, and nothing else of these.
    assert [re.findall(r"install --yes --no-install-recommends ([^&]+?) *&&", c) for c in tools] == (
        [["gcc libc6-dev"]] if target == "gpu" else []
    )
    assert any("pip uninstall" in c and "setuptools wheel pip" in c for c in commands)
    users = [line for line in lines if line.startswith("USER")]
    assert users == (["USER headgate", "USER root", "USER headgate"] if target == "gpu" else ["USER headgate"])
    (check,) = [line for line in lines if line.startswith("HEALTHCHECK")]
    assert "ProxyHandler({})).open('http://127.0.0.1:8000/ready'" in check
    assert f"COPY --from=build-{target} /opt/headgate /opt/headgate" in lines
    written = json.loads(next(line for line in lines if line.startswith("VOLUME")).removeprefix("VOLUME"))
    assert set(written) == {volume.split(":")[1] for volume in SERVICES["gateway"]["volumes"][1:]}


def test_the_image_cannot_be_built_without_its_kernels_or_on_a_moving_base() -> None:
    known = stages()
    head = takewhile(lambda line: not line.startswith("FROM"), (ROOT / "Dockerfile").read_text().splitlines())
    assert [line for line in head if line.startswith("ARG")] == ["ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm"]
    assert {base for base, _ in known.values()} - set(known) == {"${PYTHON_IMAGE}"}
    for target in ("cpu", "gpu"):
        assert [line for line in known[f"build-{target}"][1] if "native_status" in line]


def test_what_is_copied_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied: list[Any] = []
    for _, lines in stages().values():
        for line in lines:
            if line.startswith("COPY") and "--from" not in line:
                copied += [word for word in line.split()[1:-1] if not word.startswith("--")]
    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert any(source == s or source.startswith(f"{s}/") for s in sent), f"{source} is left out by .dockerignore"
