"""Hostile requests for hostile.py: bodies generated from an OpenAPI description, and odd heads."""

import base64
import functools
import json
import struct
import zlib

TEXTS = ["", "hi", "a" * 3000, "\u0000", "\ud800", "<|im_start|>system\n", "<bos><start_of_turn>model\n", "\u202e\u0301" * 50, "{{ 7 * 7 }}",
         "x-anthropic-billing-header: a; b=1;", "🦀" * 200, "\r\n\r\n", "%s%n", "' OR 1=1", "../../etc/passwd"]
NUMBERS = [0, 1, -1, -2, 2, 7, 0.5, 1e-300, 1e308, -1e308, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30]
ODD = [None, True, False, [], {}, [[]], [None], {"": None}, "", "-1", "NaN", "1h30m"]
ROLES = ["system", "user", "assistant", "tool", "developer", "function", "ipython", "", "root"]


def json_bytes(value):
    # Lone surrogates stay escaped, as a client would send them.
    return json.dumps(value).encode("ascii")


def text(rng):
    return rng.choice(TEXTS) if rng.random() < 0.7 else "".join(rng.choices("ab{}[]\"\\<>|%\n é漢", k=rng.randrange(60)))


def number(rng):
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randrange(-10, 200)


def nest(rng, depth):
    value = rng.choice([1, "x", {}])
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {rng.choice(["a", "type", "$ref", "items", "properties", "anyOf"]): value}
    return value


# Schemas.

PATTERNS = ["(.*[a-b]){20}", "((a{1,1000}){1,1000}){1,1000}", "(a|aa)+$", "^(?!x).*", "(?<=a)b", "[", "\\p{L}{1,400}", "(x+x+)+y", ".*" * 40,
            "(" * 300 + "a" + ")" * 300, "[^\\x00]{0,9999}", "(?i)straße", "a{99999}", "\\1(a)"]
TYPES = ["string", "integer", "number", "object", "array", "boolean", "null", "any", ["string", "null"], [], 7]
KEYWORDS = ["enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "items",
            "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "properties", "patternProperties", "additionalProperties",
            "required", "propertyNames", "minProperties", "dependentRequired", "dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then",
            "else", "$ref", "$defs", "definitions", "$dynamicRef", "$anchor", "unevaluatedProperties", "unevaluatedItems", "nullable",
            "contentEncoding", "title", "description", "x-guidance", "default", "examples"]


def ref_chain(rng):
    """Chain of objects, each referring to the next through one of several keywords."""
    n = rng.choice([3, 60, 150, 260, 420, 900])
    through = rng.choice(["properties", "items", "anyOf", "allOf", "oneOf", "$ref", "additionalProperties", "prefixItems"])

    def link(i):
        ref = {"$ref": f"#/$defs/a{i}"}
        return {"properties": {"type": "object", "properties": {"x": ref}}, "items": {"type": "array", "items": ref},
                "prefixItems": {"type": "array", "prefixItems": [ref]}, "additionalProperties": {"type": "object", "additionalProperties": ref},
                "$ref": ref}.get(through) or {through: [ref, {"type": "null"}]}

    end = {"$ref": "#/$defs/a0"} if rng.random() < 0.2 else {"type": "string"}
    return {"$ref": "#/$defs/a0", "$defs": {**{f"a{i}": link(i + 1) for i in range(n)}, f"a{n}": end}}


def product(rng):
    n = rng.choice([2, 8, 20])
    key = rng.choice(["allOf", "anyOf", "oneOf"])
    pattern = rng.choice(["(.*[a-%s]){20}", "(.*%s.*){9}", "[a-%s]{1,300}", "(%s|ab)*c{0,200}"])
    return {"type": "string", key: [{"pattern": pattern % chr(98 + i % 20)} for i in range(n)]}


def schema(rng, depth=0):
    draw = rng.random()
    if depth == 0 and draw < 0.12:
        return ref_chain(rng)
    if depth == 0 and draw < 0.2:
        return product(rng)
    if draw < 0.25:
        return rng.choice([True, False, {}, [], None, "string", {"type": "object"}, {"$ref": "#"}, {"$ref": "#/$defs/none"}, {"$ref": "http://x/y"}])
    out = {"type": rng.choice(TYPES)} if rng.random() < 0.8 else {}
    for key in rng.sample(KEYWORDS, rng.randrange(0, 5)):
        out[key] = keyword(rng, key, depth + 1)
    return out


def keyword(rng, key, depth):
    sub = (lambda: schema(rng, depth)) if depth < 5 else (lambda: {"type": "string"})
    if rng.random() < 0.06:
        return rng.choice(ODD + NUMBERS)
    if key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return [sub() for _ in range(rng.choice([0, 1, 2, 3, 12]))]
    if key in ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"):
        return {rng.choice(["a", "b", "^x", "", "é", "a" * 200]) + str(i): sub() for i in range(rng.choice([0, 1, 3, 40]))}
    if key in ("pattern",):
        return rng.choice(PATTERNS)
    if key in ("required", "enum", "examples"):
        return rng.choice([[], ["a0"], ["a0", "b1", "zz"], [text(rng) for _ in range(rng.choice([1, 300]))], [nest(rng, 30)]])
    if key in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "minimum", "maximum", "exclusiveMinimum", "multipleOf"):
        return number(rng)
    if key in ("uniqueItems", "nullable"):
        return True
    if key in ("title", "description", "format", "contentEncoding", "$anchor"):
        return text(rng)
    if key in ("$ref", "$dynamicRef"):
        return rng.choice(["#", "#/$defs/a0", "#/properties/a0", "#/a~1b", "#x", "other.json", ""])
    if key == "x-guidance":
        return rng.choice([{}, {"whitespace_flexible": True}, {"lenient": 5}, {"whitespace_pattern": "(a*)*"}, 7])
    return sub()


def lark(rng):
    n = rng.choice([3, 300, 700, 900])
    kind = rng.randrange(7)
    if kind == 0:
        return "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(n)) + f'a{n}: "x"'
    if kind == 1:
        return "start: A0\n" + "".join(f"A{i}: A{i + 1} | \"y\"\n" for i in range(n)) + f'A{n}: "x"'
    if kind == 2:
        return "start: " + "(" * n + '"x"' + ")" * n
    if kind == 3:
        return "start: a\na: a a | a | \"x\"?\n"
    if kind == 4:
        return "start: %json " + json.dumps(schema(rng))
    if kind == 5:
        return f"start: /{rng.choice(PATTERNS)}/"
    return rng.choice(["", "start:", "start: start", "x: \"y\"", "start: b", "start: \"a\"{1,1000000}", "%import common.WS", "start: <[999999999]>", "\u0000"])


# Images.

def png(width, height, depth=8, colour=2, interlace=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)
    line = 1 + (width * channels * depth + 7) // 8
    # Zeros deflate by a factor of a thousand. Larger images are cut, which is one more kind of fault.
    data = zlib.compress(bytes(line * min(height, (100 << 20) // line)), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width & 0xFFFFFFFF, height & 0xFFFFFFFF, depth, colour, 0, 0, interlace))
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


@functools.cache
def images():
    """Images, made once before the measurement: deflating megabytes would delay every running request."""
    sides = [(1, 1), (32, 32), (1, 24_000_000), (24_000_000, 1), (2, 4_000_000), (4900, 4900), (0, 0), (60_000, 60_000), (2**31, 1), (7, 100_000),
             (100_000, 7), (1, 1_000_000), (1_000_000, 1)]
    made = [png(width, height) for width, height in sides]
    made += [png(64, 48, depth, colour, interlace) for depth in (8, 16, 1, 3) for colour in (0, 2, 3, 4, 6, 9) for interlace in (0, 1)]
    return [*made, png(3000, 3000, 16, 6, 1), png(1, 500_000, 8, 2, 1), b"\xff\xd8\xff\xe0" + bytes(40), b"RIFF\x10\0\0\0WEBPVP8L" + bytes(20),
            b"GIF89a" + bytes(20), b"", bytes(100)]


def image(rng):
    data = rng.choice(images())
    if rng.random() < 0.3:
        data = data[: rng.randrange(len(data) + 1)]
    if rng.random() < 0.3:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    return base64.b64encode(data).decode()


# Conversations and functions.

def part(rng):
    data = "data:image/png;base64,"
    return rng.choice([
        lambda: {"type": "text", "text": text(rng)}, lambda: {"type": "input_text", "text": text(rng)}, lambda: {"type": "output_text", "text": text(rng)},
        lambda: {"type": "image_url", "image_url": {"url": data + image(rng)}}, lambda: {"type": "image_url", "image_url": rng.choice(["http://x/y", "file:///etc/passwd", data])},
        lambda: {"type": "input_image", "image_url": data + image(rng)},
        lambda: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image(rng)}},
        lambda: {"type": "tool_use", "id": text(rng), "name": "f", "input": nest(rng, rng.choice([1, 100]))},
        lambda: {"type": "tool_result", "tool_use_id": text(rng), "content": rng.choice([text(rng), [{"type": "text", "text": text(rng)}], None])},
        lambda: {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text(rng)}},
        lambda: {"type": "refusal", "refusal": text(rng)}, lambda: {"type": "thinking", "thinking": text(rng), "signature": ""},
        lambda: {"type": text(rng)}, lambda: rng.choice(ODD)])()


def message(rng):
    out = {"role": rng.choice(ROLES), "content": rng.choice([text, lambda r: [part(r) for _ in range(r.choice([0, 1, 1, 2, 40]))], number])(rng)}
    if rng.random() < 0.15:
        out["tool_calls"] = [{"id": text(rng), "type": "function", "function": {"name": text(rng), "arguments": rng.choice(["", "{", "{}", "[1]", "42", json.dumps(nest(rng, 90))])}}]
    if rng.random() < 0.1:
        out[rng.choice(["name", "tool_call_id", "images", "reasoning_content", "tool_name", "thinking"])] = rng.choice([text(rng), [image(rng)], None])
    return rng.choice(ODD) if rng.random() < 0.03 else out


def item(rng):
    return rng.choice([
        lambda: message(rng), lambda: {"type": "message", "role": rng.choice(ROLES), "content": [part(rng)]},
        lambda: {"type": "function_call", "call_id": text(rng), "name": "f", "arguments": rng.choice(["", "{", "{}"])},
        lambda: {"type": "function_call_output", "call_id": text(rng), "output": rng.choice([text(rng), [part(rng)]])},
        lambda: {"type": "reasoning", "summary": [], "content": None}, lambda: {"type": text(rng)}])()


def function(rng):
    name = rng.choice(["f", "a" * 64, "a" * 128, "a" * 300, "x.y", "", "π", "f\n", 7])
    made = schema(rng)
    return rng.choice([
        {"type": "function", "function": {"name": name, "description": text(rng), "parameters": made, "strict": rng.random() < 0.2}},
        {"type": "function", "name": name, "parameters": made, "strict": rng.random() < 0.2}, {"name": name, "input_schema": made},
        {"type": "custom", "name": name, "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": rng.choice(["web_search", "namespace", "local_shell", "", "computer"])}, rng.choice(ODD)])


def response_format(rng):
    return rng.choice([{"type": "json_object"}, {"type": "text"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(rng)}},
                       {"type": "json_schema", "name": "x", "schema": schema(rng)}, {"type": "json_schema"}, {"type": text(rng)}])


def structured(rng):
    return rng.choice([{"grammar": lark(rng)}, {"regex": rng.choice(PATTERNS)}, {"json": schema(rng)}, {"choice": [text(rng) for _ in range(rng.choice([0, 1, 500]))]},
                       {}, {"json": schema(rng), "regex": "a"}])


def ids(rng):
    return [rng.choice([0, 1, 5, 300, 4095, 65536, 2**31, 2**32 - 1, -1]) for _ in range(rng.choice([0, 1, 20, 600]))]


VALUES = {
    "messages": lambda r: [message(r) for _ in range(r.choice([0, 1, 1, 1, 2, 5, 100]))],
    "input": lambda r: r.choice([text, ids, lambda r: [text(r) for _ in range(r.choice([0, 1, 50]))], lambda r: [item(r) for _ in range(r.choice([1, 3]))]])(r),
    "prompt": lambda r: r.choice([text, ids, lambda r: [text(r) for _ in range(r.choice([0, 2, 40]))], lambda r: [ids(r)]])(r),
    "system": lambda r: r.choice([text(r), [part(r)], []]), "instructions": text,
    "tools": lambda r: [function(r) for _ in range(r.choice([0, 1, 1, 2, 130]))],
    "tool_choice": lambda r: r.choice(["auto", "none", "required", "any", {"type": "any"}, {"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}},
                                       {"type": "allowed_tools", "mode": "auto", "tools": []}]),
    "response_format": response_format, "text": lambda r: {"format": response_format(r)}, "output_config": lambda r: {"format": response_format(r)},
    "format": lambda r: r.choice([schema(r), "json", text(r)]), "structured_outputs": structured, "suffix": text, "content": text, "tokens": ids,
    "images": lambda r: [image(r) for _ in range(r.choice([0, 1, 1, 33]))],
    "stop": lambda r: r.choice([text(r), [text(r) for _ in range(r.choice([0, 1, 4, 17]))]]),
    "logit_bias": lambda r: {str(n): number(r) for n in ids(r)[:50]},
    "options": lambda r: {k: r.choice([number, text])(r) for k in r.sample(["seed", "temperature", "top_k", "num_predict", "num_ctx", "stop", "top_p", "mirostat"], 3)},
    "chat_template_kwargs": lambda r: r.choice([{}, {"messages": []}, {"bos_token": "x"}, {"enable_thinking": False}, nest(r, 60)]),
    "keep_alive": lambda r: r.choice(["5m", "1h30m", -1, 0, "x", 10**30]), "stream": lambda r: r.random() < 0.4,
    "max_tokens": lambda r: r.choice([1, 4, 16, 64, 400, -1, 0, 2**63]), "max_completion_tokens": lambda r: r.choice([1, 16, -1]), "n": lambda r: r.choice([1, 2, 32, 33, -1, 10**9]),
    "stream_options": lambda r: r.choice([{"include_usage": True}, {}, 7]), "thinking": lambda r: r.choice([{"type": "enabled", "budget_tokens": 1}, {"type": "adaptive"}, 5]),
}


def routes(openapi):
    """(path, properties, required) of every route that takes JSON."""
    out = []
    for path, methods in openapi["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        described = content.get("application/json", {}).get("schema")
        # Other tests unload models; here they stay loaded.
        if described is not None and path != "/v1/models/unload":
            out.append((path, described.get("properties", {}), described.get("required", [])))
    return out


def fitting(rng, name, described):
    if name == "model":
        return rng.choice(["text", "text", "see", "see", "none"])
    if name in VALUES:
        return VALUES[name](rng)
    kind = described.get("type")
    return {"integer": lambda: rng.randrange(0, 40), "number": lambda: rng.random() * 2, "boolean": lambda: rng.random() < 0.5, "string": lambda: text(rng),
            "array": lambda: [text(rng)], "object": lambda: {}}.get(kind, lambda: rng.choice(ODD))()


# Valid values by field. The server reaches an odd value in an otherwise valid body; among many odd values, it refuses the first.
RIGHT = {
    "model": "text", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi", "content": "hi", "tokens": [5, 6],
    "max_tokens": 8, "max_completion_tokens": 8, "max_output_tokens": 8, "options": {"num_predict": 8},
}


def body(rng, properties, required):
    if rng.random() < 0.75:
        out = {name: RIGHT[name] for name in properties if name in RIGHT}
        out.pop("max_completion_tokens", None)
        if rng.random() < 0.2 and "model" in out:
            out["model"] = "see"
        # Conversations and structured fields cause the most work.
        heavy = [name for name in properties if name in VALUES and name != "max_tokens"]
        for name in rng.sample(heavy, min(len(heavy), rng.choice([1, 1, 1, 2]))):
            out[name] = VALUES[name](rng)
        # Some routes name no fields.
        if properties and rng.random() < 0.3:
            name = rng.choice(list(properties))
            out[name] = fitting(rng, name, properties[name])
        return out
    out = {}
    for name, described in properties.items():
        if name not in required and rng.random() < 0.6:
            continue
        odd = rng.random() < 0.1
        out[name] = rng.choice([rng.choice(ODD), number(rng), text(rng), nest(rng, rng.choice([2, 120, 400]))]) if odd else fitting(rng, name, described)
    if rng.random() < 0.1:
        out[text(rng)] = nest(rng, 3)
    return out


def garble(rng, data):
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return b"[" * 100_000
    if kind == 2:
        return data + bytes(rng.randrange(256) for _ in range(9))
    if kind == 3:
        return b'{"a":' * 5000 + b"1" + b"}" * 5000
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at:]


def odd_head(rng, path, data):
    length = f"content-length: {len(data)}"
    heads = [
        [f"POST {path} HTTP/1.1", "host: localhost", "transfer-encoding: chunked", length], [f"POST {path} HTTP/1.1", "host: evil.example", length],
        [f"POST {path} HTTP/1.1", "host: localhost", "origin: http://evil.example", length], [f"POST {path} HTTP/1.1", "host: localhost", length, length],
        [f"POST {path} HTTP/1.1", "host: localhost", "content-length: -1"], [f"POST {path} HTTP/1.1", "host: localhost", "content-encoding: gzip", length],
        [f"POST {path} HTTP/1.0", length], [f"POST /{path}/ HTTP/1.1", "host: localhost", length], [f"GET {path}?x={'%' * 50} HTTP/1.1", "host: localhost"],
        [f"POST {path} HTTP/1.1", "host: localhost", "x-request-timeout-ms: " + rng.choice(["0", "1", "-1", "x", "99999999999999999999"]), length],
        [f"POST {path} HTTP/1.1", "host: localhost", "x-request-id: " + "a" * rng.choice([1, 300, 9000]), length],
        [f"POST {path} HTTP/1.1", "host: localhost", *[f"x-{i}: y" for i in range(rng.choice([10, 150]))], length], [f"DELETE {path} HTTP/1.1", "host: localhost"],
        [f"OPTIONS {path} HTTP/1.1", "host: localhost", "origin: http://localhost", "access-control-request-headers: " + "a," * 400], ["\x00\x01\x02"], ["GET"],
    ]
    lines = rng.choice(heads)
    # Every connection closes after its answer, so that the end is detected.
    lines.append("connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def request(rng, described):
    """A name for the table, and the bytes to send."""
    # Routes with many fields have the most possible faults.
    path, properties, required = rng.choices(described, [1 + len(properties) for _, properties, _ in described])[0]
    data = json_bytes(body(rng, properties, required))
    draw = rng.random()
    if draw < 0.05:
        return "an odd head", odd_head(rng, path, data[:100_000])
    name = path
    if draw < 0.12:
        name, data = "no JSON", garble(rng, data)
    head = (f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n")
    return name, head.encode() + data
