"""The bill of a call by the price list: the raw body's usage, priced by the package `genai-prices`."""
import base64
import dataclasses
import datetime
import json
import struct
from decimal import Decimal

import genai_prices

# The table of Endstop is as of this day. DeepSeek's price depends on the hour, so the dearest counts.
DAY = datetime.datetime(2026, 11, 21, tzinfo=datetime.timezone.utc)
ORDINARY = {"default", "auto", "standard", "on_demand", "1", "0"}
CHEAPER = {"flex", "batch"}


@dataclasses.dataclass
class Bill:
    """The dollars of a call, and why they are not the whole bill, if they are not."""
    usd: Decimal
    marks: list
    at_most: bool = False
    counted: bool = True
    reported: bool = False
    by_hour: bool = False


def documents(body):
    """Returns the JSON documents of a body: a single one, a list, events, lines, or Bedrock's frames."""
    try:
        whole = json.loads(body)
        return whole if isinstance(whole, list) else [whole]
    except ValueError:
        pass
    if body[:1] == b"\0":
        return list(frames(body))
    found = []
    for line in body.decode(errors="replace").splitlines():
        line = line.removeprefix("data:").strip()
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def frames(body):
    """Returns the payloads of an AWS event stream. Those of InvokeModel contain the event in base64."""
    at = 0
    while at + 16 <= len(body):
        total, headers = struct.unpack_from(">II", body, at)
        payload = json.loads(body[at + 12 + headers:at + total - 4] or b"{}")
        yield json.loads(base64.b64decode(payload["bytes"])) if "bytes" in payload else payload
        at += total


def holders(document):
    """Returns the objects of a document that can have a usage."""
    inner = [document.get(name) for name in ("response", "message", "delta", "metadata", "x_groq")]
    return [one for one in [document, *inner] if isinstance(one, dict)]


def usage_in(holder):
    for name in ("usage", "usageMetadata"):
        if isinstance(holder.get(name), dict):
            return holder[name]
    return None


def model_of(all_documents):
    for document in all_documents:
        for holder in holders(document):
            for name in ("model", "modelVersion"):
                if isinstance(holder.get(name), str) and holder[name]:
                    return holder[name]
    return None


def merged(all_documents):
    """Returns the last report of each count, and the members next to the usage that bear on the bill."""
    usage, beside = {}, {}
    for document in all_documents:
        for holder in holders(document):
            for name in ("service_tier", "serviceTier", "performanceConfig"):
                # The first events of a stream of Responses repeat the request's tier.
                if holder.get(name) is not None:
                    beside[name] = holder[name]
            usage |= {name: value for name, value in (usage_in(holder) or {}).items() if value is not None}
    return usage, beside


def bill(place, call):
    all_documents = documents(call.body)
    usage, beside = merged(all_documents)
    if not usage:
        return Bill(Decimal(0), ["no usage"], counted=False)
    cost = reported(place, usage)
    if cost is not None:
        return Bill(cost, [], reported=True)
    tier = str(tier_of(usage, beside)).lower()
    tier = tier.removeprefix("service_tier_").removeprefix("on_demand_")
    apart = billed_apart(all_documents, usage, beside)
    model = call.model
    if not is_complete(usage):
        return Bill(Decimal(0), ["incomplete usage"], counted=False)
    if (usage.get("num_cached_tokens") or 0) > usage.get("prompt_tokens", 0) > 0:
        # Either count may be wrong. Endstop books both, and marks it.
        return Bill(Decimal(0), ["cached beyond the prompt"], at_most=True, counted=False)
    if has_fee(place, model):
        return Bill(Decimal(0), ["fee per request"], counted=False)
    ordinary = max(price(place, model, usage, None, hour) for hour in (0, 3, 8, 20))
    by_hour = ordinary != min(price(place, model, usage, None, hour) for hour in (0, 3, 8, 20))
    if tier in ORDINARY:
        return Bill(ordinary, apart, by_hour=by_hour)
    if has_tier(place, model, tier):
        return Bill(price(place, model, usage, tier, 12), apart)
    return Bill(ordinary, [*apart, f"tier {tier}"], at_most=tier in CHEAPER and not apart)


def is_complete(usage):
    """Returns whether both the prompt and the output were counted."""
    prompt = ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens")
    output = ("completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount", "outputTokens")
    return all(any(usage.get(name) is not None for name in names) for names in (prompt, output))


def has_fee(place, model):
    """Returns whether each call has a fee in the list, in addition to its tokens."""
    zero = genai_prices.Usage(input_tokens=1, output_tokens=1)
    found = genai_prices.calc_price(zero, model, provider_id=place.provider, genai_request_timestamp=DAY)
    return found.model_price.requests_kcount is not None


def reported(place, usage):
    """Returns the provider's own bill."""
    raw = usage.get(place.cost) if place.cost else None
    if isinstance(raw, dict):
        raw = raw.get("total_cost")
    if raw is None:
        return None
    cost = Decimal(repr(raw))
    if place.cost == "cost_in_usd_ticks":
        return cost / Decimal(10) ** 10
    if usage.get("is_byok") is True:
        cost += Decimal(repr(usage["cost_details"]["upstream_inference_cost"]))
    return cost


def tier_of(usage, beside):
    for found in (usage.get("service_tier"), usage.get("serviceTier"), usage.get("trafficType"),
                  beside.get("service_tier"), beside.get("serviceTier")):
        if found is not None:
            return found.get("type") if isinstance(found, dict) else found
    return "default"


def billed_apart(all_documents, usage, beside):
    """Returns the parts of the bill that are not tokens at the ordinary price."""
    marks = []
    tools = usage.get("server_tool_use") or {}
    if tools.get("web_search_requests"):
        marks.append("searches")
    details = [usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")]
    if any(one.get("audio_tokens") for one in details if isinstance(one, dict)):
        marks.append("audio")
    if any(one.get("modality") in ("AUDIO", 4) for one in usage.get("promptTokensDetails") or []):
        marks.append("audio")
    if any(one.get("modality") not in ("TEXT", 1) for one in usage.get("candidatesTokensDetails") or []):
        marks.append("media")
    if usage.get("toolUsePromptTokenCount"):
        marks.append("results of tools")
    if usage.get("speed") == "fast":
        marks.append("fast")
    if usage.get("inference_geo") == "us":
        marks.append("inference in the US")
    if any(step.get("type") != "message" for step in usage.get("iterations") or []):
        marks.append("iterations")
    for document in all_documents:
        items = [document.get("item"), *(document.get("output") or []),
                 *((document.get("response") or {}).get("output") or [])] if "cohere" not in document else []
        fees = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
        if any(isinstance(item, dict) and item.get("type") in fees for item in items):
            marks.append("server tools")
        if any(candidate.get("groundingMetadata") for candidate in document.get("candidates") or []):
            marks.append("searches")
    return sorted(set(marks))


def plain(place, usage):
    """Returns the usage without the parts that Endstop marks instead of pricing them."""
    usage = dict(usage)
    for name in ("server_tool_use", "promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails",
                 "toolUsePromptTokenCount", "toolUsePromptTokensDetails"):
        usage.pop(name, None)
    # The package's extractor does not know this member:
    # https://api-docs.deepseek.com/guides/kv_cache, "prompt_cache_hit_tokens".
    if place.provider == "deepseek" and "prompt_cache_hit_tokens" in usage:
        usage["prompt_tokens_details"] = {"cached_tokens": usage["prompt_cache_hit_tokens"]}
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        if isinstance(usage.get(name), dict):
            usage[name] = {key: value for key, value in usage[name].items() if key != "audio_tokens"}
    return usage


def price(place, model, usage, tier, hour):
    root = "usageMetadata" if place.flavor == "default" and place.provider == "google" else "usage"
    document = {root: plain(place, usage), "model": model, "modelVersion": model}
    found = genai_prices.extract_usage(document, provider_id=place.provider, api_flavor=place.flavor)
    context = {"service_tier": tier} if tier else None
    return genai_prices.calc_price(found.usage, model, provider_id=place.provider, price_context=context,
                                   genai_request_timestamp=DAY.replace(hour=hour)).total_price


def has_tier(place, model, tier):
    """Returns whether the provider's list has a price for the tier on that day."""
    zero = genai_prices.Usage(input_tokens=1, output_tokens=1)
    found = genai_prices.calc_price(zero, model, provider_id=place.provider, genai_request_timestamp=DAY)
    if found.provider.find_model(model) is None:
        return False
    for variant in found.model.price_variants or []:
        day = getattr(variant.constraint, "start_date", None)
        if variant.when == {"service_tier": tier} and (day is None or day <= DAY.date()):
            return True
    return False


def is_priced(place, call):
    """Returns whether the body has a usage, and the list a price."""
    usage, _ = merged(documents(call.body))
    try:
        if usage and reported(place, usage) is None:
            # A model without any price is not free.
            return price(place, call.model, usage, None, 12) > 0 or not is_complete(usage)
        return bool(usage)
    except (LookupError, ValueError):
        return False


def cached(place, call):
    usage, _ = merged(documents(call.body))
    text = json.dumps(usage)
    names = ('"cached_tokens": ', '"cachedContentTokenCount": ', '"cache_read_input_tokens": ',
             '"cacheReadInputTokens": ', '"prompt_cache_hit_tokens": ', '"cache_creation_input_tokens": ')
    return any(name in text and not text.split(name)[1].startswith("0") for name in names)
