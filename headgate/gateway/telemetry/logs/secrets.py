"""Keeping secrets out of the log: what looks like a key, a password or a token is not written, whoever logs it."""

from __future__ import annotations

import logging
import re

HIDDEN = "[secret]"

_PATTERNS = (
    # What follows the name of something secret: in quotes, or up to the next space.
    re.compile(
        r"(?i)(\b(?:proxy-)?authorization|\bx-api-key|\bapi[-_ ]?key|\bpassword|\bpasswd|\bsecret|\btoken)"
        r"(['\"]?\s*[:=]\s*)(?:\"[^\"]*\"|'[^']*'|(?:(?:bearer|basic)\s+)?[^\s'\"]+)"
    ),
    re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}"),
    # Credentials in a URL: all up to the last @ of its authority.
    re.compile(r"(\b[a-z][a-z0-9+.-]*://)()[^\s/?#'\"]*(?=@)"),
    # Keys of ours and of providers, by how they begin.
    re.compile(r"()()(?<![A-Za-z0-9])(?:hg|sk|pk|rk|gsk|xai|hf|ghp|gho|glpat|AKIA|AIza)[-_]?[A-Za-z0-9_-]{16,}"),
)


def without_secrets(text: str) -> str:
    """The text with `[secret]` where a key, a password or a token was."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1\2{HIDDEN}", text)
    return text


class CarefulFormatter(logging.Formatter):
    """Formats a record, traceback included, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """As logging.Formatter does."""
        return without_secrets(super().format(record))
