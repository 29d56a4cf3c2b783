"""Team files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import read_roster
from headgate.gateway.teams.registry import Roster


def write_team(folder: Path, name: str, *keys: dict[str, Any], **sections: Any) -> Path:
    """The file of a team with these keys and sections."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"team": {"name": name}, "keys": list(keys), **sections}, sort_keys=False))
    return path


def key(key_id: str, **more: Any) -> dict[str, Any]:
    """A key whose secret is in the variable of its id in capitals, with `_KEY` behind it."""
    return {"id": key_id, "secret": f"env:{key_id.upper()}_KEY", **more}


def roster(folder: Path, environ: dict[str, str] | None = None, **sections: Any) -> Roster:
    """What the files of a folder say over a main file of these sections."""
    return read_roster(Settings(teams={"folder": str(folder)}, **sections), environ or {})
