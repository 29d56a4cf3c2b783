"""Names of OpenTelemetry's semantic conventions for generative AI, as they are in the version that is named here.

They are in development: a later version may call things otherwise, and is taken over by changing this file.
"""

from __future__ import annotations

VERSION = "1.41.1"
"""The last version of the general conventions that has them; they have a repository of their own since."""
SCHEMA_URL = f"https://opentelemetry.io/schemas/{VERSION}"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
OUTPUT_TYPE = "gen_ai.output.type"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_STOP = "gen_ai.request.stop_sequences"
REQUEST_CHOICES = "gen_ai.request.choice.count"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
OPENAI_REQUEST_TIER = "openai.request.service_tier"
OPENAI_RESPONSE_FINGERPRINT = "openai.response.system_fingerprint"
OPENAI_API = "openai.api.type"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"

CLIENT_TOKENS = "gen_ai.client.token.usage"
CLIENT_DURATION = "gen_ai.client.operation.duration"
CLIENT_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
CLIENT_CHUNK = "gen_ai.client.operation.time_per_output_chunk"
SERVER_DURATION = "gen_ai.server.request.duration"
SERVER_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
SERVER_TOKEN = "gen_ai.server.time_per_output_token"

TOKEN_BUCKETS = [4.0**i for i in range(14)]
DURATION_BUCKETS = [0.01 * 2**i for i in range(14)]
FIRST_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
EACH_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/rerank": "rerank",
    "/v1/score": "score",
    "/score": "score",
    "/v1/moderations": "moderation",
    "/v1/audio/speech": "speech",
    "/v1/audio/transcriptions": "transcription",
    "/v1/audio/translations": "translation",
    "/v1/images/generations": "image_generation",
    "/v1/images/edits": "image_edit",
}
"""By endpoint; what is asked elsewhere is no operation. The conventions have no names for those behind embeddings."""
OPENAI_APIS = {"/v1/chat/completions": "chat_completions", "/v1/responses": "responses"}
