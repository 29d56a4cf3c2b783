"""Every metric that a server may publish, by what it tells of. `headgate metrics reference` prints them as a page."""

from __future__ import annotations

from headgate.gateway.telemetry.metrics.families import CounterFamily, Family, GaugeFamily, HistogramFamily
from headgate.gateway.telemetry.metrics.vllm_catalogue import Vllm


class Requests:
    """What clients asked for and how it went."""

    ENDED = CounterFamily(
        "headgate_requests_total", "Requests that have ended.", ("endpoint", "team", "model", "route", "code")
    )
    IN_FLIGHT = GaugeFamily("headgate_requests_in_flight", "Requests on the road now.")
    QUEUED = GaugeFamily(
        "headgate_requests_queued",
        "Requests whose answer has not begun, `foreground` or `background`.",
        ("model", "priority"),
    )
    DURATION = HistogramFamily(
        "headgate_request_duration_seconds",
        "From the first byte read to the last sent. `source` is `computed` or `cache`.",
        ("model", "source"),
    )
    FIRST_TOKEN = HistogramFamily(
        "headgate_time_to_first_token_seconds", "From arrival to the first token.", ("model", "source")
    )
    INTER_TOKEN = HistogramFamily(
        "headgate_inter_token_latency_seconds", "Between the tokens of one choice.", ("model",)
    )
    OVERHEAD = HistogramFamily(
        "headgate_overhead_seconds",
        "From arrival until a model is asked or an answer found: keys, limits, cache, routing.",
        ("source",),
    )
    QUEUE = HistogramFamily(
        "headgate_request_queue_seconds", "From submission to the engine to its first step.", ("model",)
    )
    PROMPT_TOKENS = CounterFamily(
        "headgate_prompt_tokens_total", "Tokens of prompts that were computed or embedded.", ("model",)
    )
    GENERATION_TOKENS = CounterFamily(
        "headgate_generation_tokens_total", "Tokens generated, also for clients who left.", ("model",)
    )
    CACHED_TOKENS = CounterFamily(
        "headgate_cached_prompt_tokens_total", "Prompt tokens whose keys and values were there already.", ("model",)
    )
    DRAFTED = CounterFamily(
        "headgate_drafted_tokens_total",
        "Tokens that drafts of answers proposed: the client's (`prediction`) or a similar question's answer (`near`), "
        "`accepted` or `rejected`.",
        ("model", "source", "end"),
    )
    REFUSED = CounterFamily(
        "headgate_refused_requests_total",
        "Requests beyond a limit (`requests`, `tokens`, `concurrency`) or a budget (its name).",
        ("team", "reason"),
    )
    BATCH_LINES = CounterFamily(
        "headgate_batch_lines_total", "Lines of batches that have ended.", ("endpoint", "model", "code")
    )
    BATCHES = GaugeFamily("headgate_batches", "Batches that have not ended.", ("status",))
    BATCH_LINES_IN_FLIGHT = GaugeFamily("headgate_batch_lines_in_flight", "Lines that are being answered.")


class Teams:
    """What teams used, as the ledger has it, and how their budgets stand."""

    REQUESTS = CounterFamily(
        "headgate_usage_requests_total",
        "Answers by cause: `generated`, `exact`, `semantic`, `cancelled`, `rejected`, `retried`, `shadow`.",
        ("team", "model", "cause"),
    )
    TOKENS = CounterFamily(
        "headgate_usage_tokens_total",
        "Tokens of answers by cause: `prompt` and `cached` of them, `completion` and `drafted` of them.",
        ("team", "model", "cause", "kind"),
    )
    USD = CounterFamily("headgate_usage_usd_total", "What answers cost, by cause.", ("team", "model", "cause"))
    DEVICE = CounterFamily(
        "headgate_usage_device_seconds_total", "Device time that answers took, by cause.", ("team", "model", "cause")
    )
    BUDGET_USED = GaugeFamily(
        "headgate_budget_used_ratio",
        "Share of a budget that is spent: `daily_usd`, `monthly_usd`, `daily_device_s`, `monthly_device_s`.",
        ("team", "budget"),
    )
    LIMIT_USD = GaugeFamily(
        "headgate_budget_limit_usd", "What may be spent in a period, `daily` or `monthly`.", ("team", "period")
    )
    SPENT_USD = GaugeFamily("headgate_budget_spent_usd", "What is spent in a period.", ("team", "period"))
    RESERVED_USD = GaugeFamily(
        "headgate_budget_reserved_usd", "What is set aside for requests that are being answered.", ("team", "period")
    )
    LIMIT_DEVICE = GaugeFamily(
        "headgate_budget_limit_device_seconds", "Device time that may be used in a period.", ("team", "period")
    )
    SPENT_DEVICE = GaugeFamily(
        "headgate_budget_spent_device_seconds", "Device time used in a period.", ("team", "period")
    )
    RESERVED_DEVICE = GaugeFamily(
        "headgate_budget_reserved_device_seconds",
        "Device time set aside for requests that are being answered.",
        ("team", "period"),
    )
    LEDGER_FAILING = GaugeFamily("headgate_ledger_failing", "1 while the ledger cannot be written.")
    LEDGER_WAITING = GaugeFamily("headgate_ledger_waiting", "Entries that wait to be written.")
    LEDGER_LOST = CounterFamily(
        "headgate_ledger_lost_total", "Entries that found no room to wait, or cannot be written."
    )
    RATINGS = CounterFamily(
        "headgate_feedback_ratings_total",
        "Answers rated, by their first rating: `good` or `bad`, of answers `generated`, `exact` or `semantic`.",
        ("model", "cause", "verdict"),
    )
    SCORE = CounterFamily(
        "headgate_feedback_score_total",
        "Sum of the scores, 0 to 1 each, of answers' first ratings.",
        ("model", "cause"),
    )


class Cache:
    """With Redis there is a feed of what it holds, and no store; without, a store and no feed."""

    LOOKUPS = CounterFamily(
        "headgate_cache_lookups_total",
        "What the cache said: `exact`, `semantic`, `near`, `miss` or `bypass`.",
        ("verdict", "reason"),
    )
    HIT_AGE = HistogramFamily("headgate_cache_hit_age_seconds", "Age of the answers that were served.", ("kind",))
    SAVED_TOKENS = CounterFamily(
        "headgate_cache_saved_tokens_total", "`prompt` and `completion` tokens that were not computed.", ("kind",)
    )
    SAVED_DEVICE = CounterFamily("headgate_cache_saved_device_seconds_total", "Device time that hits would have taken.")
    SAVED_USD = CounterFamily(
        "headgate_cache_saved_usd_total", "Device time that hits would have taken, at `engine.usd_per_device_hour`."
    )
    STORES = CounterFamily(
        "headgate_cache_stores_total",
        "Finished answers: `kept`, `lost`, beyond their key's `share`, `filtered` by an upstream's content filter, or "
        "a `fallback` by a lesser model than the request was for.",
        ("result",),
    )
    WAITS = CounterFamily(
        "headgate_cache_waits_total", "Waits for a similar question: `served`, `other`, `timeout`.", ("result",)
    )
    STORE_ENTRIES = GaugeFamily("headgate_cache_store_entries", "Answers in this process's memory.")
    STORE_BYTES = GaugeFamily("headgate_cache_store_bytes", "Bytes of the answers in this process's memory.")
    STORE_MAX_BYTES = GaugeFamily(
        "headgate_cache_store_max_bytes", "Bytes that answers in this process's memory may take."
    )
    STORE_EVICTIONS = CounterFamily("headgate_cache_store_evictions_total", "Answers that left for want of room.")
    INDEX_ENTRIES = GaugeFamily("headgate_cache_index_entries", "Texts that can be found by meaning.")
    FEED_LAG = GaugeFamily("headgate_cache_feed_lag_seconds", "Age of Redis' latest change when it came.")
    FEED_STALENESS = GaugeFamily(
        "headgate_cache_feed_staleness_seconds", "What was written to Redis longer ago is indexed here."
    )
    FEED_COPYING = GaugeFamily(
        "headgate_cache_feed_copying", "Vectors copied so far, while all that Redis holds is copied."
    )
    FEED_REBUILDS = CounterFamily("headgate_cache_feed_rebuilds_total", "Copies made of all that Redis holds.")
    FAULTS = CounterFamily("headgate_cache_faults_total", "Calls that failed and counted as a miss.", ("part",))


class Audits:
    """Only where hits by meaning are audited."""

    ENDED = CounterFamily("headgate_cache_audits_total", "Audits of semantic hits.", ("state",))
    LABELS = CounterFamily(
        "headgate_cache_audit_labels_total",
        "What audits and others said of stored answers: `right` or `wrong`.",
        ("source", "kind", "verdict"),
    )
    WRONG_RATIO = GaugeFamily(
        "headgate_cache_wrong_hit_ratio",
        "Wrong share of semantic hits since the threshold rose last: `lower` and `upper` bound at any time, and what "
        "was `labelled`.",
        ("bound",),
    )
    DEVICE = CounterFamily("headgate_cache_audit_device_seconds_total", "Device time of audits.")
    DEVICE_RATIO = GaugeFamily("headgate_cache_audit_device_ratio", "Audits' part of all device time since the start.")
    QUARANTINED = GaugeFamily("headgate_cache_quarantined_entries", "Stored answers found wrong.")
    THRESHOLD = GaugeFamily(
        "headgate_cache_audit_threshold", "Score from which on audits let hits be served; `+Inf`: none."
    )
    BREACHES = CounterFamily("headgate_cache_audit_breaches_total", "Times that the threshold of audits had to rise.")


class Routing:
    """What was decided, and how right the prices were."""

    DECIDED = CounterFamily("headgate_routes_total", "Routing decisions.", ("model", "reason"))
    ESCALATIONS = CounterFamily(
        "headgate_route_escalations_total",
        "Requests left to the router that a large model answered.",
        ("model", "kind"),
    )
    DECISION = HistogramFamily("headgate_route_decision_seconds", "Deciding, but for the embedding.")
    PREDICTED = CounterFamily(
        "headgate_route_predicted_seconds_total", "What prices said answers would take.", ("model",)
    )
    ACTUAL = CounterFamily(
        "headgate_route_actual_seconds_total", "What answers with a predicted price took.", ("model",)
    )
    PRICE_RATIO = HistogramFamily(
        "headgate_route_price_ratio", "Predicted seconds of an answer to those it took.", ("model",)
    )
    SAVED_DEVICE = GaugeFamily(
        "headgate_route_saved_device_seconds",
        "Device time of the cheapest large model's price not spent, at the prices of the decision; falls with checks "
        "in vain.",
        ("model", "reason"),
    )
    SAVED_USD = GaugeFamily(
        "headgate_route_saved_usd",
        "US dollars, as device time in `headgate_route_saved_device_seconds`.",
        ("model", "reason"),
    )
    SHADOWS = CounterFamily(
        "headgate_shadow_requests_total",
        "Answers of models in the shadow of others, and whether both say the same.",
        ("team", "model", "shadow", "result"),
    )
    BREAKER = GaugeFamily(
        "headgate_route_breaker_state", "0: asked, 1: tried by one request, 2: left alone.", ("model",)
    )


class Upstreams:
    """Only where some are configured. `model` is the upstream's id."""

    ATTEMPTS = CounterFamily(
        "headgate_upstream_attempts_total",
        "Requests sent to it, by how they ended: `answered`, or `unreachable`, `timeout`, `overloaded`, `failed`, "
        "`broken`, `cut`, `stalled`, `context`, `policy`, `refused`, `setup`.",
        ("model", "end"),
    )
    RETRIES = CounterFamily("headgate_upstream_retries_total", "Attempts after failed ones.", ("model",))
    HEDGES = CounterFamily(
        "headgate_upstream_hedges_total",
        "Second attempts beside slow first ones that `won` or `lost`.",
        ("model", "result"),
    )
    HEALTHY = GaugeFamily("headgate_upstream_healthy", "Whether checks find the server well.", ("model",))


class Engine:
    """What the models on this machine do."""

    RUNNING = GaugeFamily("headgate_requests_running", "Sequences being computed.", ("model",))
    WAITING = GaugeFamily("headgate_requests_waiting", "Sequences waiting for room.", ("model",))
    PENDING = GaugeFamily(
        "headgate_pending_prompt_tokens", "Prompt tokens that sequences running or waiting still lack.", ("model",)
    )
    BACKGROUND = GaugeFamily("headgate_background_requests", "Sequences nobody waits for.", ("model",))
    PINNED = GaugeFamily("headgate_pinned_tokens", "Tokens of pinned prompts in the prefix cache.", ("team", "model"))
    KV_USAGE = GaugeFamily("headgate_kv_cache_usage_ratio", "Share of the KV cache that sequences hold.", ("model",))
    KV_BLOCKS = GaugeFamily("headgate_kv_cache_blocks", "KV blocks that there are.", ("model",))
    KV_BYTES = GaugeFamily("headgate_kv_cache_bytes", "Bytes kept for KV blocks; 0 while the model sleeps.", ("model",))
    ASLEEP = GaugeFamily(
        "headgate_model_asleep", "1 from falling asleep until the model is awake again, else 0.", ("model",)
    )
    SLEEPS = CounterFamily("headgate_model_sleeps_total", "Times that the model fell asleep.", ("model",))
    WAKES = CounterFamily("headgate_model_wakes_total", "Times that the model woke.", ("model",))
    WAKE_SECONDS = CounterFamily("headgate_model_wake_seconds_total", "Time that waking took.", ("model",))
    PREFIX_QUERIES = CounterFamily(
        "headgate_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", ("model",)
    )
    PREFIX_HITS = CounterFamily(
        "headgate_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", ("model",)
    )
    TIER_BLOCKS = GaugeFamily(
        "headgate_kv_tier_blocks", "KV blocks in `host` memory and on `disk`, beside the cache.", ("model", "tier")
    )
    TIER_BYTES = GaugeFamily(
        "headgate_kv_tier_bytes", "Bytes reserved of `host` memory, and of the files on `disk`.", ("model", "tier")
    )
    TIER_TOKENS = CounterFamily(
        "headgate_kv_tier_loaded_tokens_total",
        "Prompt tokens whose KV blocks came back from a tier.",
        ("model", "tier"),
    )
    TIER_LOADS = CounterFamily("headgate_kv_loads_total", "Times that prompts waited for KV blocks.", ("model",))
    TIER_SHORT = CounterFamily(
        "headgate_kv_short_loads_total",
        "Of these, those that failed or took too long: the rest is computed.",
        ("model",),
    )
    TIER_SECONDS = CounterFamily("headgate_kv_load_seconds_total", "Time that such loading took.", ("model",))
    TIER_WRITTEN = CounterFamily("headgate_kv_written_blocks_total", "KV blocks written to disk.", ("model",))
    TIER_DROPPED = CounterFamily(
        "headgate_kv_dropped_blocks_total",
        "KV blocks that no tier got: too many at once, or disk full or failing.",
        ("model",),
    )
    PREEMPTIONS = CounterFamily("headgate_preemptions_total", "Sequences recomputed for want of room.", ("model",))
    STEPS = CounterFamily("headgate_steps_total", "Steps of the engine.", ("model",))
    SHORT_STEPS = CounterFamily(
        "headgate_short_steps_total",
        "Steps that did not fit the device's memory, after which smaller ones were taken.",
        ("model",),
    )
    FAILED_STEPS = CounterFamily("headgate_failed_steps_total", "Steps that failed the requests in them.", ("model",))
    STEP_SECONDS = CounterFamily("headgate_step_seconds_total", "Time spent in steps.", ("model",))
    PICTURES = CounterFamily(
        "headgate_pictures_total", "Pictures looked at; one whose sight is still kept is not.", ("model",)
    )
    PICTURE_SECONDS = CounterFamily(
        "headgate_picture_seconds_total", "Part of the time in steps for looking at pictures.", ("model",)
    )
    GUESSED = CounterFamily(
        "headgate_guessed_tokens_total",
        "Tokens that steps checked unasked: what was said before (`prompt`) or what a small model says (`model`), "
        "`accepted` or `rejected`.",
        ("model", "source", "end"),
    )
    BACKGROUND_SECONDS = CounterFamily(
        "headgate_background_seconds_total", "Part of the time in steps for work that nobody waits for.", ("model",)
    )


class Server:
    """The process. `process_*` and `python_gc_*` stand beside these, Prometheus' usual figures of CPU, memory, open
    files and garbage collection.
    """

    BUILD = GaugeFamily("headgate_build_info", "Always 1: what is running.", ("version", "python"))
    CONFIG = GaugeFamily(
        "headgate_config_info", "Always 1: the revision of the configuration that holds.", ("revision",)
    )
    CONFIG_SEEN = GaugeFamily("headgate_config_seen_timestamp_seconds", "When a scrape first found that revision.")
    CONFIG_GOOD = GaugeFamily("headgate_config_good", "Whether the files of the configuration hold as they are now.")
    RESTART_KEYS = GaugeFamily("headgate_config_restart_keys", "Changed keys of the main file that need a restart.")
    RELOADS = CounterFamily(
        "headgate_config_reloads_total",
        "Readings of the configuration after the start: `taken`, `refused`.",
        ("result",),
    )
    READY = GaugeFamily("headgate_ready", "Whether requests are answered.")
    PART_STATE = GaugeFamily(
        "headgate_part_state",
        "1 for the state that a part of `/ready` is in: `loading`, `ready`, `off`, `failed`.",
        ("part", "state"),
    )
    REMEMBERED = GaugeFamily(
        "headgate_remembered_items",
        "What is in memory of requests that have ended: `bodies` as they were read, answers for `retries`, open "
        "`tabs`, `requests` of the operator's page, `ratable` answers, `responses`, `embeddings`, `texts` as guards "
        "read them, `labels` of stored answers.",
        ("store",),
    )
    REMEMBERED_RATIO = GaugeFamily(
        "headgate_remembered_ratio", "What part of its bound a store takes; when it is full, the oldest go.", ("store",)
    )
    PICTURE_BYTES = GaugeFamily(
        "headgate_picture_bytes",
        "Memory of pictures as models of this process take them, until their answers are whole; "
        "`server.max_picture_bytes` bounds it.",
    )
    BLOCKS = GaugeFamily("headgate_python_blocks", "Blocks of memory that Python's objects take.")
    LOG_LINES_DROPPED = CounterFamily(
        "headgate_log_lines_dropped_total",
        "Lines that could not be written, of the access log and of the server's own.",
    )
    SPANS = CounterFamily(
        "headgate_otel_spans_total",
        "With `telemetry.otel`: spans that the collector took (`sent`) or not (`dropped`).",
        ("result",),
    )


SECTIONS: tuple[tuple[str, type], ...] = (
    ("Requests", Requests),
    ("Teams", Teams),
    ("The answer cache", Cache),
    ("Audits of the answer cache", Audits),
    ("Routing", Routing),
    ("Upstreams", Upstreams),
    ("The engine", Engine),
    ("The server", Server),
    ("vLLM's names", Vllm),
)
"""All of them, with their titles."""


def families(section: type) -> tuple[Family, ...]:
    """Those of a section, in their order."""
    return tuple(value for value in vars(section).values() if isinstance(value, Family))
