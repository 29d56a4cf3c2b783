"""The metrics that a server publishes under vLLM's names, where it is asked to."""

from __future__ import annotations

from headgate.gateway.telemetry.metrics.families import CounterFamily, GaugeFamily, HistogramFamily

_LABELS = ("model_name", "engine")


class Vllm:
    """Only with `telemetry.vllm_names`: the engine's figures under the names that vLLM has for them, with its types,
    buckets and labels. They are the engine's own: answers from the cache and requests to upstreams are not in them. The
    times from `e2e_request_latency` to `request_decode_time` are of sequences that ended by themselves or at a limit.
    """

    RUNNING = GaugeFamily(
        "vllm:num_requests_running", "Sequences being computed, without what nobody waits for.", _LABELS
    )
    WAITING = GaugeFamily(
        "vllm:num_requests_waiting", "Sequences waiting for room, without what nobody waits for.", _LABELS
    )
    KV_USAGE = GaugeFamily("vllm:kv_cache_usage_perc", "Share of the KV cache in use; 1 is all of it.", _LABELS)
    PREFIX_QUERIES = CounterFamily(
        "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", _LABELS
    )
    PREFIX_HITS = CounterFamily("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", _LABELS)
    PREEMPTIONS = CounterFamily("vllm:num_preemptions_total", "Sequences recomputed for want of room.", _LABELS)
    PROMPT_TOKENS = CounterFamily(
        "vllm:prompt_tokens_total",
        "Of prompts whose first token came, cached ones included; each choice counts its prompt.",
        _LABELS,
    )
    GENERATION_TOKENS = CounterFamily("vllm:generation_tokens_total", "Tokens generated.", _LABELS)
    SUCCESS = CounterFamily(
        "vllm:request_success_total",
        "Choices by why they ended: `stop`, `length`, `abort` (cancelled), `error`.",
        (*_LABELS, "finished_reason"),
    )
    FIRST_TOKEN = HistogramFamily(
        "vllm:time_to_first_token_seconds", "From submission to the engine to the first token.", _LABELS
    )
    INTER_TOKEN = HistogramFamily(
        "vllm:inter_token_latency_seconds",
        "Between the tokens of a sequence. Tokens that one call of the engine computed share its time; those that "
        "came along with the first token are left out.",
        _LABELS,
    )
    WHOLE = HistogramFamily(
        "vllm:e2e_request_latency_seconds",
        "From submission to the last token.",
        _LABELS,
    )
    QUEUE = HistogramFamily("vllm:request_queue_time_seconds", "From submission to the first step.", _LABELS)
    INFERENCE = HistogramFamily(
        "vllm:request_inference_time_seconds", "From the first step to the last token.", _LABELS
    )
    PREFILL = HistogramFamily("vllm:request_prefill_time_seconds", "From the first step to the first token.", _LABELS)
    DECODE = HistogramFamily("vllm:request_decode_time_seconds", "From the first token to the last.", _LABELS)
    STEP_TOKENS = HistogramFamily("vllm:iteration_tokens_total", "Tokens computed in a step.", _LABELS)
    CHOICES = HistogramFamily("vllm:request_params_n", "Choices that requests ask for.", _LABELS)
    MAX_TOKENS = HistogramFamily(
        "vllm:request_params_max_tokens",
        "Tokens that requests ask the engine for at most; teams' caps are in it.",
        _LABELS,
    )
    CACHE_CONFIG = GaugeFamily(
        "vllm:cache_config_info",
        "Always 1: the KV cache of a model; `num_gpu_blocks` are on whatever device it has.",
        (*_LABELS, "num_gpu_blocks", "block_size", "cache_dtype", "enable_prefix_caching"),
    )
