#!/usr/bin/env python3
"""Renders the chat templates of crates/text/tests/fixtures/chat with Hugging Face transformers.

Each NAME.jinja there is rendered for a set of conversations by the function that `apply_chat_template` uses
(Jinja with transformers' settings). The conversations and tools go to conversations.json, the prompts to NAME.json.
A refusal or an error is written as `null`. For `strftime_now` it is always 2024-07-26 12:34:56 UTC.

    python tools/make_chat_fixtures.py

Needs the packages `transformers` and `jinja2`.
"""

import datetime
import json
from pathlib import Path

import transformers.utils.chat_template_utils as chat

FOLDER = Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/chat"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 34, 56)


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, id="abcdefghi"):
    return {"role": "tool", "content": content, "tool_call_id": id, "name": "weather"}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the \"weather\" <now> & later, in °C",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["Zürich", "北京"]}, "days": {"type": "integer", "default": 1}},
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Tells the time", "parameters": {"type": "object", "properties": {}}}}

QUESTION = [user("What is a mill?")]
TURNS = [system("  Be brief.\n"), user(" Hi! "), assistant("\n\nHello. "), user("Who are you?\n")]
CALLS = [
    user("Weather in Zürich?"),
    assistant("", tool_calls=[call("weather", {"place": "Zürich", "days": 2, "units": None, "exact": True, "limit": 1.5})]),
    result('{"temp": 21.5}'),
    assistant("It is 21.5 °C."),
    user("And now?"),
]
TWO_CALLS = [
    system("Use tools."), user("Weather and time?"),
    assistant("Let me look.", tool_calls=[call("weather", {"place": "北京"}), call("clock", {}, "123456789")]),
    result("sunny"), result("noon", "123456789"),
]
REASONING = [
    user("2+2?"), assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?"),
    assistant("6", reasoning_content="Three and three."), user("4+4?"), assistant("8", reasoning="Four and four."),
]
PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "Look closely."}]},
    user([{"type": "image"}, {"type": "text", "text": " What is this? "}]),
]
LAST_IS_ASSISTANT = [user("Write."), assistant("Once upon")]
WRONG_ORDER = [user("a"), user("b")]
EMPTY = [system(""), user(""), assistant(""), user("")]
UNICODE = [user("é e\u0301 我 🦙\u200d \"quoted\" <tag> & 'x' \\ {{ no }} {% no %}")]

CONVERSATIONS = {
    "question": QUESTION, "turns": TURNS, "calls": CALLS, "two calls": TWO_CALLS, "reasoning": REASONING, "parts": PARTS,
    "ends with assistant": LAST_IS_ASSISTANT, "wrong order": WRONG_ORDER, "empty": EMPTY, "unicode": UNICODE,
}

TOOLS = [WEATHER, CLOCK]

# Extra variables for some templates.
VARIABLES = {
    "llama31": [{}, {"tools_in_user_message": False}, {"date_string": "1 May 2025", "builtin_tools": ["weather", "code_interpreter"]}],
    "qwen3": [{}, {"enable_thinking": False}, {"enable_thinking": True}],
    "smollm3": [{}, {"enable_thinking": False}],
}


def cases(name: str, source: str):
    """Every conversation, with and without tools. The end alternates between open and closed."""
    number = 0
    for variables in VARIABLES.get(name, [{}]):
        for title, messages in CONVERSATIONS.items():
            for with_tools in (False, True):
                number += 1
                options = {"tools": with_tools, "add_generation_prompt": number % 3 != 0, "variables": variables}
                yield {"conversation": title, **options, "prompt": render(source, title, messages, options)}


def render(source: str, title: str, messages: list, options: dict):
    try:
        rendered, _ = chat.render_jinja_template(
            [messages],
            tools=TOOLS if options["tools"] else None,
            chat_template=source,
            add_generation_prompt=options["add_generation_prompt"],
            bos_token="<s>",
            eos_token="</s>",
            **options["variables"],
        )
        return rendered[0]
    except Exception as error:  # A template may raise any exception.
        print(f"  {title}: {type(error).__name__}: {error}")
        return None


def write(path: Path, value) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    return len(text.encode()) // 1024


def main() -> None:
    chat.datetime = Clock
    write(FOLDER / "conversations.json", {"tools": TOOLS, "messages": CONVERSATIONS})
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        out = list(cases(path.stem, source))
        size = write(path.with_suffix(".json"), out)
        print(f"{path.name}: {len(out)} cases, {sum(c['prompt'] is None for c in out)} refused, {size} KiB")


if __name__ == "__main__":
    main()
