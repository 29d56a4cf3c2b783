"""Every team and key as the configuration says at one moment, and which moment holds now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.gateway.teams.keys import OPEN_TEAM, Held, Keyring, Principal
from headgate.gateway.teams.sections import TeamPolicy


@dataclass(frozen=True, slots=True)
class Team:
    """A team: its policy with the defaults filled in, and its keys."""

    name: str
    policy: TeamPolicy
    models: frozenset[str] | None
    """Ids of the models that it may ask; None: all."""
    keys: tuple[Held, ...]


class Roster:
    """All teams and keys. Never changed: a reload makes another."""

    def __init__(
        self,
        defaults: TeamPolicy,
        teams: Sequence[Team] = (),
        *,
        models: frozenset[str] | None = None,
        revision: str = "",
        variables: frozenset[str] = frozenset(),
    ) -> None:
        """The teams of some files; without any everybody may ask.

        Args:
            defaults: what holds where no team file says anything.
            teams: by their files; names and the ids of keys are unique.
            models: ids that the defaults allow; None: all.
            revision: changes with whatever the configuration says.
            variables: names of the environment's variables that hold keys.
        """
        self.teams: Mapping[str, Team] = {team.name: team for team in teams}
        self.revision = revision
        self.variables = variables
        self._keyring = Keyring(key for team in teams for key in team.keys)
        self._anybody = Principal(policy=defaults, models=models)
        self.defaults = defaults
        self.models = models

    @property
    def open(self) -> bool:
        """Whether everybody may ask: there is no team file."""
        return not self.teams

    @property
    def names(self) -> frozenset[str]:
        """Every team that can ask."""
        return frozenset(self.teams) or frozenset({OPEN_TEAM})

    def authenticate(self, authorization: str | None, now: float) -> Principal:
        """The principal of an `Authorization` header at a Unix time; ApiError 401 where there is none."""
        return self._anybody if self.open else self._keyring.authenticate(authorization, now)

    def principal(self, team: str | None, key_id: str | None) -> Principal:
        """Who a team or a key would be; LookupError, in plain words, where there is none of that name."""
        if team is None and key_id is None:
            return self._anybody
        if team is not None and team not in self.names:
            raise LookupError(f"there is no team '{team}'; the teams are {', '.join(sorted(self.names))}")
        if key_id is not None:
            keys = [key.principal for t in self.teams.values() if team in (None, t.name) for key in t.keys]
            found = {who.key_id: who for who in keys}
            if key_id not in found:
                ids = ", ".join(sorted(filter(None, found))) or "none"
                raise LookupError(f"there is no key '{key_id}'; the keys are {ids}")
            return found[key_id]
        assert team is not None, "one of the two is given"
        named = self.teams.get(team)
        return self._anybody if named is None else Principal(team, policy=named.policy, models=named.models)


class Teams:
    """The roster that holds now. A request takes its principal once, so that a reload changes none that runs."""

    def __init__(self, roster: Roster, clock: Callable[[], float] = time.time) -> None:
        """Begin with a roster. `clock`: Unix time."""
        self._roster = roster
        self._clock = clock
        self._was_closed = not roster.open

    @property
    def roster(self) -> Roster:
        """As it is now."""
        return self._roster

    @property
    def open(self) -> bool:
        """Whether everybody may ask. A server that has asked for keys never stops to: only a restart can open it."""
        return self._roster.open and not self._was_closed

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal of an `Authorization: Bearer …` header; ApiError 401 where there is none."""
        roster = self._roster
        if roster.open and self._was_closed:
            return Keyring(()).authenticate(authorization, self._clock())
        return roster.authenticate(authorization, self._clock())

    def named(self, team: str, key_id: str | None) -> Principal | None:
        """Who a key stands for by its id, for work that goes on without a request; None where it is gone."""
        if self.open:
            return self._roster.authenticate(None, 0) if key_id is None else None
        found = self._roster.teams.get(team)
        for key in () if found is None else found.keys:
            expired = key.expires is not None and self._clock() >= key.expires
            if key.principal.key_id == key_id and not expired:
                return key.principal
        return None

    def replace(self, roster: Roster) -> None:
        """From the next request on another roster holds."""
        self._roster = roster
        self._was_closed = self._was_closed or not roster.open
