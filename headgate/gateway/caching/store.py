"""Which Redis keeps the answers, if any: the one that is found, the one the configuration names, or none."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from typing import TYPE_CHECKING

from headgate.gateway.configuration.cache import CacheSection, redis_url_problem
from headgate.gateway.lifecycle import Lifecycle

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

logger = logging.getLogger("headgate.gateway")

PART = "redis"
URL_VARIABLE = "REDIS_URL"
DEFAULT_URL = "redis://127.0.0.1:6379"
_HERE = "answers are kept in this process"


def open_redis(section: CacheSection, lifecycle: Lifecycle) -> RedisStore | None:
    """The Redis to try, not connected yet, or None. The lifecycle learns which, and why none.

    Raises:
        ImportError: the configuration names a server, and the redis package is not installed.
    """
    auto = section.redis == "auto"
    url = (os.environ.get(URL_VARIABLE) or DEFAULT_URL) if auto else section.redis
    why = None
    if not section.exact.enabled:
        why = "cache.exact.enabled is false"
    elif url is None:
        why = f"switched off by cache.redis; {_HERE}"
    elif importlib.util.find_spec("redis") is None:
        why = "the redis package is not installed; pip install 'headgate[redis]' brings it"
        if not auto:
            raise ImportError(f"cache.redis names a server, but {why}")
    elif problem := redis_url_problem(url):
        why = f"{URL_VARIABLE} is {problem}; {_HERE}"
    if why is not None or url is None:
        lifecycle.set(PART, "off", why or "", required=False)
        return None

    from headgate.cache.store.redis import RedisStore

    def changed(reason: str | None) -> None:
        _tell(redis, section, lifecycle, reason)

    redis = RedisStore(url, time.time, timeout_s=section.redis_timeout_s, changed=changed)
    lifecycle.set(PART, "loading", redis.address, required=False)
    return redis


async def connect_redis(redis: RedisStore, section: CacheSection, lifecycle: Lifecycle) -> RedisStore | None:
    """The store where its server answers or the configuration names it; None, with the store closed, otherwise."""
    reason = await redis.ping()
    if reason is not None and section.redis == "auto":
        await redis.close()
        lifecycle.set(PART, "off", f"{redis.address} does not answer ({reason}); {_HERE}", required=False)
        return None
    if reason is not None:
        logger.warning("no answer is cached until %s, which cache.redis names, answers: %s", redis.address, reason)
    _tell(redis, section, lifecycle, reason)
    return redis


def _tell(redis: RedisStore, section: CacheSection, lifecycle: Lifecycle, reason: str | None) -> None:
    if reason is not None:
        detail = f"{redis.address} does not answer ({reason}); it is used once it does"
        lifecycle.set(PART, "failed", detail, required=False)
    elif section.secret is None:
        detail = f"{redis.address}; set cache.secret to find its answers after a restart and from other processes"
        lifecycle.set(PART, "ready", detail, required=False)
    else:
        lifecycle.set(PART, "ready", redis.address, required=False)
