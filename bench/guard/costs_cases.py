"""The runs of `costs.py`: recorded exchanges by provider, and exchanges that are derived from them."""
import base64
import copy
import dataclasses
import gzip
import json
import re
import urllib.parse

import costs_list

# The number of calls of a run.
CALLS = 5


@dataclasses.dataclass(frozen=True)
class Place:
    """A provider: its recordings, the guard's upstream, and its names in the price list."""
    name: str
    upstream: str
    base: str
    provider: str
    flavor: str
    # The path of a call without a recorded one; `{model}` and `{method}` are filled in.
    path: str
    # A member of the usage that has the provider's bill, if it reports one.
    cost: str = ""


PLACES = [
    Place("openai-chat", "openai", "http://api.openai.com/v1", "openai", "chat", "/v1/chat/completions"),
    Place("openai-responses", "openai", "http://api.openai.com/v1", "openai", "responses", "/v1/responses"),
    Place("azure-openai-responses", "openai", "http://acme.openai.azure.com/openai/v1", "azure", "responses",
          "/v1/responses"),
    Place("azure-openai-chat", "openai", "http://acme.openai.azure.com/openai/v1", "azure", "chat",
          "/v1/chat/completions"),
    Place("anthropic-messages", "anthropic", "http://api.anthropic.com", "anthropic", "default", "/v1/messages"),
    Place("gemini", "gemini", "http://generativelanguage.googleapis.com", "google", "default",
          "/v1beta/models/{model}:{method}"),
    Place("vertex-gemini", "gemini", "http://us-central1-aiplatform.googleapis.com", "google", "default",
          "/v1/projects/p/locations/us-central1/publishers/google/models/{model}:{method}"),
    Place("vertex-anthropic", "anthropic", "http://us-east5-aiplatform.googleapis.com", "google", "anthropic",
          "/v1/projects/p/locations/us-east5/publishers/anthropic/models/{model}:{method}"),
    Place("bedrock-converse", "bedrock", "http://bedrock-runtime.us-east-1.amazonaws.com", "aws", "default",
          "/model/{model}/{method}"),
    Place("bedrock-invoke", "bedrock", "http://bedrock-runtime.us-east-1.amazonaws.com", "aws", "anthropic",
          "/model/{model}/{method}"),
    Place("openrouter", "openai", "http://openrouter.ai/api/v1", "openrouter", "chat", "/v1/chat/completions", "cost"),
    Place("xai", "openai", "http://api.x.ai/v1", "x-ai", "chat", "/v1/chat/completions", "cost_in_usd_ticks"),
    Place("xai-responses", "openai", "http://api.x.ai/v1", "x-ai", "responses", "/v1/responses", "cost_in_usd_ticks"),
    Place("perplexity", "openai", "http://api.perplexity.ai", "perplexity", "default", "/chat/completions", "cost"),
    Place("deepseek", "openai", "http://api.deepseek.com", "deepseek", "chat", "/chat/completions"),
    Place("mistral", "openai", "http://api.mistral.ai/v1", "mistral", "default", "/v1/chat/completions"),
    Place("groq", "openai", "http://api.groq.com/openai/v1", "groq", "default", "/v1/chat/completions"),
    Place("zai", "openai", "http://api.z.ai/api/paas/v4", "zai", "chat", "/v1/chat/completions"),
]


@dataclasses.dataclass(frozen=True)
class Call:
    path: str
    model: str
    request: dict
    body: bytes
    content_type: str


def runs(place, folder):
    """Returns the calls of each run, by the name of the run."""
    calls, found = [], {}
    with gzip.open(folder / f"{place.name}.jsonl.gz", "rt") as lines:
        for number, line in enumerate(lines):
            call = recorded(place, json.loads(line), number)
            if call and costs_list.is_priced(place, call):
                calls.append(call)
    # Those with cached tokens first, so that no run lacks them if there are any.
    calls.sort(key=lambda call: not costs_list.cached(place, call))
    count = len(calls) // CALLS or bool(calls)
    for number in range(count):
        found[f"{place.name}-{number + 1}"] = calls[number::count][:CALLS]
    for name, edit, models in DERIVED.get(place.name, []):
        derived = [edited(place, call, edit, models) for call in calls[:4]]
        if derived:
            found[f"{place.name}-{name}*"] = derived
    return found


def recorded(place, record, number):
    """Returns the exchange as a call, unless it failed, or its model is not known."""
    if record["status"] != 200:
        return None
    request = record.get("request") if isinstance(record.get("request"), dict) else {}
    body = record["body"]
    body = base64.b64decode(body) if record["body_encoding"] == "base64" else body.encode()
    url = urllib.parse.unquote(record.get("url_path") or "")
    in_path = re.search(r"/models?/([^/:]+(?::\d+)?)(?:[:/]\w|$)", url)
    documents = costs_list.documents(body)
    model = request.get("model") or (in_path and in_path[1]) or costs_list.model_of(documents)
    if not model or not documents:
        return None
    model = model.removeprefix("models/")
    streamed = bool(record["streaming"])
    binary = record["body_encoding"] == "base64"
    content_type = "application/vnd.amazon.eventstream" if binary else \
        "text/event-stream" if body.lstrip().startswith((b"data:", b"event:", b":")) else "application/json"
    return Call(path_of(place, model, streamed), model, request_of(place, model, streamed, number), body, content_type)


def path_of(place, model, streamed):
    method = {"gemini": ("generateContent", "streamGenerateContent?alt=sse"),
              "vertex-gemini": ("generateContent", "streamGenerateContent?alt=sse"),
              "vertex-anthropic": ("rawPredict", "streamRawPredict"),
              "bedrock-converse": ("converse", "converse-stream"),
              "bedrock-invoke": ("invoke", "invoke-with-response-stream")}.get(place.name, ("", ""))[streamed]
    return place.path.format(model=urllib.parse.quote(model, safe=""), method=method)


def request_of(place, model, streamed, number):
    """Returns a short request of the format. Each has another text, so that none is a retry."""
    text = f"Question {number}."
    if place.name in ("gemini", "vertex-gemini"):
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if place.name == "bedrock-converse":
        return {"messages": [{"role": "user", "content": [{"text": text}]}]}
    messages = [{"role": "user", "content": text}]
    if place.name == "bedrock-invoke":
        return {"anthropic_version": "x", "max_tokens": 100, "messages": messages}
    if place.name == "vertex-anthropic":
        return {"anthropic_version": "x", "max_tokens": 100, "messages": messages, "stream": streamed}
    if place.name.endswith("responses"):
        return {"model": model, "input": messages, "stream": streamed}
    return {"model": model, "max_tokens": 100, "messages": messages, "stream": streamed}


def edited(place, call, edit, model):
    """Returns the call with edited usage, and with another model, if one is given."""
    def change(document):
        document = copy.deepcopy(document)
        for holder in costs_list.holders(document):
            edit(holder, costs_list.usage_in(holder))
        return json.dumps(document)

    text = call.body.decode()
    if call.content_type == "application/json":
        text = change(json.loads(text))
    else:
        text = re.sub(r"(?m)^data: ?(\{.*)$", lambda line: "data: " + change(json.loads(line[1])), text)
    model = model or call.model
    request = call.request | ({"model": model} if "model" in call.request else {})
    if model != call.model:
        text = re.sub(r'"(model|modelVersion)": ?"[^"]*"', lambda found: f'"{found[1]}": "{model}"', text)
    path = call.path.replace(urllib.parse.quote(call.model, safe=""), urllib.parse.quote(model, safe=""))
    return dataclasses.replace(call, body=text.encode(), model=model, request=request, path=path)


def scaled(factor):
    """Multiplies all counts, so that the prompt is long."""
    def scale(value):
        if isinstance(value, dict):
            return {key: scale(item) for key, item in value.items()}
        if isinstance(value, list):
            return [scale(item) for item in value]
        return value * factor if isinstance(value, int) and not isinstance(value, bool) else value

    def edit(_, usage):
        if usage is not None:
            changed = scale(usage)
            usage.clear()
            usage.update(changed)
    return edit


def exactly(**counts):
    """Sets the counts of prompt and output, at the threshold of a price."""
    def edit(_, usage):
        if usage is not None:
            for name, count in counts.items():
                if name in usage:
                    usage[name] = count
    return edit


def in_holder(**members):
    return lambda holder, _: holder.update(members)


def in_usage(**members):
    def edit(_, usage):
        if usage is not None:
            usage.update(members)
    return edit


def without_usage(holder, _):
    for name in ("usage", "usageMetadata"):
        holder.pop(name, None)


def without_cost(_, usage):
    if usage is not None:
        usage.pop("cost_in_usd_ticks", None)


def summed(_, usage):
    """Corrects the total of a usage of xAI, which counts reasoning in addition to the completion."""
    if usage is not None and "total_tokens" in usage:
        reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"] + reasoning


def both(*edits):
    def edit(holder, usage):
        for one in edits:
            one(holder, usage)
    return edit


LONG = scaled(40_000)
HOUR = {"cache_creation_input_tokens": 3_000, "cache_read_input_tokens": 70_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 2_000}}
DERIVED = {
    "openai-chat": [
        ("long", LONG, "gpt-5.4"),
        ("long-priority", both(LONG, in_holder(service_tier="priority")), "gpt-5.4"),
        ("long-flex", both(LONG, in_holder(service_tier="flex")), "gpt-5.4"),
        ("flex", in_holder(service_tier="flex"), "gpt-5-mini"),
        ("priority", in_holder(service_tier="priority"), "gpt-4o"),
        ("scale", in_holder(service_tier="scale"), "gpt-4o"),
        ("flex-without-price", in_holder(service_tier="flex"), "gpt-4o"),
        ("audio", in_usage(prompt_tokens_details={"audio_tokens": 5, "cached_tokens": 0}), "gpt-4o"),
        ("no-usage", without_usage, "gpt-4o"),
    ],
    "openai-responses": [
        ("long", LONG, "gpt-5.5"),
        ("writes", in_usage(input_tokens_details={"cached_tokens": 1, "cache_write_tokens": 2}), "gpt-5.6-sol"),
        ("long-flex", both(LONG, in_holder(service_tier="flex")), "gpt-5.6-sol"),
        ("priority", in_holder(service_tier="priority"), "gpt-5.1"),
        ("no-usage", without_usage, "gpt-5.1"),
    ],
    "azure-openai-chat": [("priority", in_holder(service_tier="priority"), "gpt-4o")],
    "anthropic-messages": [
        ("long", LONG, "claude-haiku-5-5"),
        ("long-hour", both(in_usage(**HOUR), in_usage(input_tokens=50_000)), "claude-haiku-5-5"),
        ("hour", in_usage(**HOUR), "claude-sonnet-4-5"),
        ("hour-opus", in_usage(**HOUR), "claude-opus-4-6"),
        ("priority", in_usage(service_tier="priority"), "claude-sonnet-4-5"),
        ("batch", in_usage(service_tier="batch"), "claude-sonnet-4-5"),
        ("searches", in_usage(server_tool_use={"web_search_requests": 2, "web_fetch_requests": 0}), ""),
        ("fetches", in_usage(server_tool_use={"web_search_requests": 0, "web_fetch_requests": 2}), ""),
        ("fast", in_usage(speed="fast"), "claude-opus-4-6"),
        ("us", in_usage(inference_geo="us"), "claude-opus-4-6"),
        ("no-usage", without_usage, ""),
    ],
    "gemini": [
        ("long", LONG, "gemini-2.5-pro"),
        ("threshold", exactly(promptTokenCount=200_000), "gemini-2.5-pro"),
        ("over-threshold", exactly(promptTokenCount=200_001), "gemini-2.5-pro"),
        ("cached", in_usage(promptTokenCount=9_000, cachedContentTokenCount=8_000), "gemini-2.5-flash"),
        ("tools", in_usage(toolUsePromptTokenCount=371), "gemini-2.5-flash"),
        ("flex", in_usage(serviceTier="flex"), "gemini-2.5-flash"),
        ("priority", in_usage(serviceTier="priority"), "gemini-2.5-flash"),
        ("audio", in_usage(promptTokensDetails=[{"modality": "AUDIO", "tokenCount": 5}]), "gemini-2.5-flash"),
        ("no-usage", without_usage, "gemini-2.5-flash"),
    ],
    "vertex-gemini": [
        ("long", LONG, "gemini-2.5-pro"),
        ("priority", in_usage(trafficType="ON_DEMAND_PRIORITY"), "gemini-2.5-flash"),
        ("flex", in_usage(trafficType="ON_DEMAND_FLEX"), "gemini-2.5-flash"),
        ("provisioned", in_usage(trafficType="PROVISIONED_THROUGHPUT"), "gemini-2.5-flash"),
    ],
    "vertex-anthropic": [("long", LONG, "claude-haiku-5-5"), ("hour", in_usage(**HOUR), "claude-opus-4-6")],
    "xai": [("long", both(LONG, without_cost), "grok-4.7"),
            ("threshold", both(exactly(prompt_tokens=200_000), without_cost, summed), "grok-4.7"),
            ("below-threshold", both(exactly(prompt_tokens=199_999), without_cost, summed), "grok-4.7")],
    "openrouter": [("byok", in_usage(cost=0, is_byok=True, cost_details={"upstream_inference_cost": 0.0002265}), "")],
    "mistral": [("cached", in_usage(prompt_tokens=900, prompt_tokens_details={"cached_tokens": 640}), "")],
}
