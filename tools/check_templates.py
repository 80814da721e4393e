#!/usr/bin/env python3
"""Checks the chat templates of published models: whether they render as with Jinja2, and which formats of calls and thoughts they use.

    cargo build --release -p millrace-server --example template_ways
    tools/check_templates.py FOLDER [--program target/release/examples/template_ways] [--failures]

FOLDER has one template per file (`*.jinja`); llama.cpp's repository has some seventy in `models/templates`. They are not part of this
repository, since others wrote them. For each template the script prints

- whether conversations render as in Jinja2 with transformers' settings, including errors;
- the format of its calls: `explained` if it shows no functions, so that the server explains them to the model in a format of its own;
  `UNKNOWN` if it shows them and no format is known or derived;
- which earlier calls it writes, and whether answers that the template writes, with calls and thoughts, parse to the same values, whole
  and in pieces;
- the format of its thoughts.

Needs the package `jinja2` (3.1.6). The exit code is 1 if a conversation renders differently, an answer does not parse, or a format is
unknown.
"""

import argparse
import copy
import datetime
import json
import pathlib
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Says what the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Where."},
                                                     "days": {"type": "integer", "description": "How many."}},
                   "required": ["city", "days"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome", "days": 3}}}
ODD = {"type": "function", "function": {
    "name": "odd", "description": "Takes <anything> & 'all'.",
    "parameters": {"type": "object", "$defs": {"part": {"type": "object", "properties": {"id": {"type": "string", "description": "An id."}}}},
                   "properties": {"text": {"type": "string", "enum": ["a", "\u00e9"], "description": "A text."},
                                  "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Or not."},
                                  "list": {"type": "array", "items": {"$ref": "#/$defs/part"}, "description": "Parts."},
                                  "obj": {"type": "object", "description": "Any.", "additionalProperties": True}},
                   "required": ["text"]}}}
# Families whose vocabulary alone determines the format: part of the file's name, and tokens that the template does not contain.
VOCABULARIES = {"LFM2": ["<|tool_call_start|>"], "Llama-3.": ["<|python_tag|>"]}
USER = {"role": "user", "content": "How is the weather?"}


def conversations():
    result = {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "sunny"}
    called = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    hard = {"text": "it's \"q\" </x>\n\u00fc\u96e8 \\ {a}", "n": -2.5, "big": 12345678901, "on": True, "nil": None, "empty": "",
            "list": [1, "two", {"k": [True, None]}], "obj": {"a b": {"c": "d'e"}, "e": []}}
    call = {"id": "call00002", "type": "function", "function": {"name": "odd", "arguments": hard}}
    several = [USER, {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL, call]}]
    texts = copy.deepcopy(several)
    for one in texts[1]["tool_calls"]:
        one["function"]["arguments"] = json.dumps(one["function"]["arguments"])
    results = [result, {"role": "tool", "name": "odd", "tool_call_id": "call00002", "content": "{\"a\": [1, null]}"}]
    return [
        {"messages": [USER], "add_generation_prompt": True},
        {"messages": [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Fine."}, USER],
         "add_generation_prompt": True},
        {"messages": [USER, {"role": "assistant", "content": "Fine.", "reasoning_content": "Hm."}], "add_generation_prompt": False},
        {"messages": [USER], "tools": [WEATHER], "add_generation_prompt": True},
        {"messages": called, "tools": [WEATHER], "add_generation_prompt": False},
        {"messages": called + [result], "tools": [WEATHER], "add_generation_prompt": True},
        {"messages": [USER, USER], "add_generation_prompt": True},
        {"messages": [{"role": "system", "content": "Be brief."}, USER], "tools": [WEATHER, ODD], "add_generation_prompt": True},
        {"messages": called + [result, {"role": "assistant", "content": "Sunny."}, USER], "tools": [WEATHER], "add_generation_prompt": True},
        {"messages": several + results, "tools": [WEATHER, ODD], "add_generation_prompt": True},
        {"messages": texts + results, "tools": [WEATHER, ODD], "add_generation_prompt": True},
    ] + [{"messages": messages, "tools": tools, "variables": {"enable_thinking": thinks, "thinking": thinks},
          "add_generation_prompt": True} for thinks in (True, False) for messages, tools in (([USER], None), (called + [result], [WEATHER]))]


class Generation(jinja2.ext.Extension):
    """The block `{% generation %}`, which marks the text that a model is trained on. Its content is rendered unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    """Jinja2 with the settings of transformers."""
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return env


def by_jinja(source, bos, eos):
    """Each conversation as Jinja2 renders it; `None` for an error."""
    try:
        template = environment().from_string(source)
    except jinja2.TemplateError as error:
        return f"does not parse: {error}"
    out = []
    for one in conversations():
        one = copy.deepcopy(one)
        # A thought is given under each name that templates read.
        for message in one["messages"]:
            if "reasoning_content" in message:
                message.setdefault("thinking", message["reasoning_content"])
        try:
            out.append(template.render(messages=one["messages"], tools=one.get("tools"), documents=None, bos_token=bos, eos_token=eos,
                                       add_generation_prompt=one["add_generation_prompt"], **one.get("variables", {})))
        except Exception:  # noqa: BLE001 - a template may raise any kind
            out.append(None)
    return out


def vocabulary(name):
    return [token for part, tokens in VOCABULARIES.items() if part in name for token in tokens]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/examples/template_ways")
    parser.add_argument("--failures", action="store_true", help="print what comes out otherwise")
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.jinja"))
    if not files:
        sys.exit(f"{args.folder} has no *.jinja")
    tokens = {"bos": "<bos>", "eos": "<eos>"}
    lines = [json.dumps({"source": file.read_text(), "conversations": conversations(), "vocabulary": vocabulary(file.stem)} | tokens)
             for file in files]
    done = subprocess.run([args.program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{args.program} failed:\n{done.stderr}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    print("| template | as Jinja2 | calls | earlier | read again | thoughts |\n|---|---|---|---|---|---|")
    n_same = n_calls = n_unknown = n_read = n_unread = n_thoughts = 0
    for file, answer in zip(files, answers, strict=True):
        wanted = by_jinja(file.read_text(), tokens["bos"], tokens["eos"])
        found = answer.get("rendered", answer.get("error"))
        same = found == wanted if isinstance(wanted, list) else "error" in answer
        unread = answer.get("unread")
        n_same += same
        n_calls += answer.get("calls") is not None
        calls = answer.get("calls") or ("UNKNOWN" if answer.get("shows_functions", True) else "explained")
        n_unknown += calls == "UNKNOWN"
        n_read += unread == []
        n_unread += bool(unread)
        n_thoughts += answer.get("thoughts") is not None
        read = "–" if unread is None else "NO" if unread else "yes"
        print(f"| {file.stem} | {'yes' if same else 'NO'} | {calls} | {answer.get('earlier') or '–'} | {read} "
              f"| `{answer.get('thoughts') or '–'}` |")
        if args.failures and not same:
            for i, one in enumerate(conversations()):
                pair = (wanted[i], found[i]) if isinstance(wanted, list) and isinstance(found, list) else (wanted, found)
                if pair[0] != pair[1]:
                    print(f"  conversation {i}: Jinja2 {pair[0]!r}\n  here {pair[1]!r}")
        for one in (unread or []) if args.failures else []:
            print(f"  given {one['given']}\n  written {one['written']!r}\n  read {one['read']}")
    print(f"\n{len(files)} templates: {n_same} as Jinja2; {n_calls} with calls of their own, {n_unknown} of an unknown way, {n_thoughts} with thoughts; answers of {n_read} are read again, "
          f"of {n_unread} not")
    sys.exit(n_same < len(files) or n_unread > 0 or n_unknown > 0)


if __name__ == "__main__":
    main()
