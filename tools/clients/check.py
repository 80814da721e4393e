"""Runs the published clients of three APIs, unmodified, against `millrace serve`.

    python3 -m venv venv && venv/bin/pip install -r tools/clients/requirements.txt
    cargo build --release
    venv/bin/python tools/clients/check.py target/release/millrace [--device xdna2] [--node]

Starts the server on a free port with an API key, sends requests through each client, with and without streaming, and stops it.
With --device, the models run on that device. It has no embeddings, so the script checks that they are refused.
With --frameworks PYTHON, the frameworks installed for that Python are checked too. The option may be repeated: the frameworks need
different versions of `openai`, so they need separate environments (frameworks.txt, llama-index.txt, aider.txt, mini-swe-agent.txt).
With --open-webui COMMAND, Open WebUI is started in front of the server (open_webui.py; open-webui.txt has its version).
With --node, npm packages are checked too. They must be installed beside this file (`npm install` there).
A failed check prints the expected and the found value. The exit code is 1 if any check fails.
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import anthropic
import ollama
import openai
from checks import ANSWER, KEY, LAMP, QUESTION, check, failures, refused

sys.path.append(str(Path(__file__).resolve().parents[1] / "server_load"))
from variants import CODER, THINKER, rewritten  # noqa: E402


def openai_chat(client):
    chat = client.chat.completions
    answer = chat.create(model="demo", messages=QUESTION, temperature=0)
    check("openai chat", answer.choices[0].message.content, ANSWER)
    check("openai chat: reason", answer.choices[0].finish_reason, "stop")
    check("openai chat: usage", answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    parts = list(chat.create(model="demo", messages=QUESTION, temperature=0, stream=True,
                             stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    check("openai chat, stream", text, ANSWER)
    check("openai chat, stream: usage", parts[-1].usage.completion_tokens, answer.usage.completion_tokens)

    with client.chat.completions.stream(model="demo", messages=QUESTION, temperature=0) as stream:
        stream.until_done()
        final = stream.get_final_completion()
    check("openai chat, stream helper", final.choices[0].message.content, ANSWER)

    answer = chat.create(model="demo", messages=QUESTION, temperature=1, seed=3, n=3, max_tokens=8, logprobs=True,
                         top_logprobs=2)
    check("openai chat: n", len(answer.choices), 3)
    tokens = answer.choices[0].logprobs.content
    check("openai chat: logprobs", "".join(token.token for token in tokens), answer.choices[0].message.content)
    again = chat.create(model="demo", messages=QUESTION, temperature=1, seed=3, n=3, max_tokens=8)
    check("openai chat: seed", [c.message.content for c in again.choices], [c.message.content for c in answer.choices])

    stopped = chat.create(model="demo", messages=QUESTION, temperature=0, stop=[" is"])
    check("openai chat: stop", stopped.choices[0].message.content, "7 plus 5")
    cut = chat.create(model="demo", messages=QUESTION, temperature=0, max_completion_tokens=2)
    check("openai chat: length", cut.choices[0].finish_reason, "length")


def openai_forms(client):
    chat = client.chat.completions
    tools = [{"type": "function", "function": {"name": "lamp", "parameters": LAMP, "strict": True}}]
    ask = dict(model="demo", messages=QUESTION, tools=tools, tool_choice="required", parallel_tool_calls=False,
               max_tokens=300)
    answer = chat.create(**ask)
    call = answer.choices[0].message.tool_calls[0]
    check("openai tools: name", call.function.name, "lamp")
    check("openai tools: arguments", isinstance(json.loads(call.function.arguments)["on"], bool))
    check("openai tools: reason", answer.choices[0].finish_reason, "tool_calls")
    with chat.stream(**ask) as stream:
        stream.until_done()
        final = stream.get_final_completion()
    check("openai tools, stream", final.choices[0].message.tool_calls[0].function.name, "lamp")

    messages = QUESTION + [answer.choices[0].message.model_dump(exclude_none=True),
                           {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    answer = chat.create(model="demo", messages=messages, tools=tools, tool_choice="none", max_tokens=8)
    check("openai tools: result", isinstance(answer.choices[0].message.content, str))

    schema = {"type": "json_schema", "json_schema": {"name": "lamp", "schema": LAMP, "strict": True}}
    answer = chat.create(model="demo", messages=QUESTION, response_format=schema, temperature=2)
    check("openai schema", isinstance(json.loads(answer.choices[0].message.content)["on"], bool))


def openai_embeddings(client, device):
    if device:
        error = refused("openai embeddings: none on a device", openai.BadRequestError,
                        lambda: client.embeddings.create(model="demo", input="The dog ran."))
        check("openai embeddings: the error says why", "makes no embeddings" in str(error))
        return
    vectors = client.embeddings.create(model="demo", input=["The dog ran.", "The dog went.", "What is 7 plus 5?"])
    one, near, far = [entry.embedding for entry in vectors.data]
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))  # noqa: E731
    check("openai embeddings: length 1", round(dot(one, one), 4), 1.0)
    check("openai embeddings: near and far", dot(one, near) > dot(one, far))
    plain = client.embeddings.create(model="demo", input="The dog ran.", encoding_format="float")
    check("openai embeddings: base64 is the same", plain.data[0].embedding, one)


def receipt(client, device):
    answer = client.chat.completions.create(model="demo", messages=QUESTION, temperature=0,
                                            extra_body={"placement": True})
    placement = answer.usage.model_extra["placement"]
    check("receipt: this computer's time is measured", placement["host_time"], "measured")
    modelled = placement.get("device_time", "").startswith("modelled")
    check("receipt: a virtual device's time is modelled", modelled, bool(device))
    check("receipt: what is left to this computer", "host_ops" in placement, bool(device))


def openai_rest(client, models):
    text = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=4, temperature=0)
    check("openai completions", text.choices[0].text.startswith(", there"))
    parts = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=4, temperature=0, stream=True)
    check("openai completions, stream", "".join(part.choices[0].text for part in parts), text.choices[0].text)

    response = client.responses.create(model="demo", input="What is 7 plus 5?", temperature=0)
    check("openai responses", response.output_text, ANSWER)
    with client.responses.stream(model="demo", input="What is 7 plus 5?", temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    check("openai responses, stream", text, ANSWER)
    check("openai responses, stream: final", final.output_text, ANSWER)
    tool = {"type": "function", "name": "lamp", "parameters": LAMP, "strict": True}
    response = client.responses.create(model="demo", input="Light!", tools=[tool], tool_choice="required",
                                       parallel_tool_calls=False)
    check("openai responses: tools", response.output[0].name, "lamp")

    check("openai models", [model.id for model in client.models.list()], models)
    check("openai models: one", client.models.retrieve("demo").id, "demo")
    refused("openai: unknown model", openai.NotFoundError,
            lambda: client.chat.completions.create(model="other", messages=QUESTION))
    error = refused("openai: wrong field", openai.BadRequestError,
                    lambda: client.chat.completions.create(model="demo", messages=QUESTION, temperature=-1))
    check("openai: wrong field is named", error.param, "temperature")
    stranger = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    refused("openai: wrong key", openai.AuthenticationError, stranger.models.list)


async def openai_many(url):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY)

    async def one(i):
        question = [{"role": "user", "content": f"What is {1 + i % 5} plus {1 + i % 3}?"}]
        answer = await client.chat.completions.create(model="demo", messages=question, temperature=0)
        return i % 15, answer.choices[0].message.content

    answers = await asyncio.gather(*[one(i) for i in range(60)])
    kinds = {}
    for kind, text in answers:
        kinds.setdefault(kind, set()).add(text)
    check("openai: 60 at once, each its own answer", all(len(texts) == 1 for texts in kinds.values()))


def anthropic_messages(url):
    client = anthropic.Anthropic(base_url=url, api_key=KEY)
    # The newest client has no argument for the temperature, but the API has one.
    greedy = {"temperature": 0}
    ask = dict(model="demo", max_tokens=40, messages=QUESTION, extra_body=greedy)
    message = client.messages.create(**ask)
    check("anthropic", message.content[0].text, ANSWER)
    check("anthropic: reason", message.stop_reason, "end_turn")
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("anthropic, stream", text, ANSWER)
    check("anthropic, stream: usage", final.usage.output_tokens, message.usage.output_tokens)
    stopped = client.messages.create(**ask, stop_sequences=[" is"])
    check("anthropic: stop sequence", stopped.stop_sequence, " is")
    count = client.messages.count_tokens(model="demo", messages=QUESTION)
    usage = message.usage
    check("anthropic: count", count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
    tools = [{"name": "lamp", "input_schema": LAMP}]
    called = client.messages.create(**ask | {"max_tokens": 300}, tools=tools, tool_choice={"type": "any"})
    check("anthropic: tools", (called.stop_reason, called.content[0].name), ("tool_use", "lamp"))
    with client.messages.stream(**ask | {"max_tokens": 300}, tools=tools,
                                tool_choice={"type": "tool", "name": "lamp"}) as stream:
        final = stream.get_final_message()
    check("anthropic: tools, stream", isinstance(final.content[0].input["on"], bool))
    form = {"format": {"type": "json_schema", "schema": LAMP}}
    formed = client.messages.create(**ask, output_config=form)
    check("anthropic: schema", isinstance(json.loads(formed.content[0].text)["on"], bool))
    refused("anthropic: wrong field", anthropic.BadRequestError,
            lambda: client.messages.create(**ask | {"extra_body": {"temperature": 9}}))
    stranger = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
    refused("anthropic: wrong key", anthropic.AuthenticationError, lambda: stranger.messages.create(**ask))


def ollama_calls(url, models, device):
    client = ollama.Client(host=url, headers={"authorization": f"Bearer {KEY}"})
    ask = dict(model="demo", messages=QUESTION, options={"temperature": 0})
    check("ollama chat", client.chat(**ask).message.content, ANSWER)
    parts = list(client.chat(**ask, stream=True))
    check("ollama chat, stream", "".join(part.message.content or "" for part in parts), ANSWER)
    check("ollama chat, stream: reason", parts[-1].done_reason, "stop")
    text = client.generate(model="demo", prompt="What is 7 plus 5?", options={"temperature": 0})
    check("ollama generate", text.response, ANSWER)
    parts = client.generate(model="demo", prompt="What is 7 plus 5?", options={"temperature": 0}, stream=True)
    check("ollama generate, stream", "".join(part.response for part in parts), ANSWER)
    form = client.chat(**ask | {"options": {"temperature": 2}}, format=LAMP)
    check("ollama: schema", isinstance(json.loads(form.message.content)["on"], bool))
    if device:
        refused("ollama embed: none on a device", ollama.ResponseError, lambda: client.embed(model="demo", input="The"))
    else:
        vectors = client.embed(model="demo", input=["The dog ran.", "The dog went."]).embeddings
        check("ollama embed", (len(vectors), round(sum(x * x for x in vectors[0]), 4)), (2, 1.0))
    check("ollama list", [model.model for model in client.list().models], models)
    check("ollama ps", [model.model for model in client.ps().models], models)
    client.generate(model="demo", keep_alive=0)
    check("ollama: unloaded", "demo" in [model.model for model in client.ps().models], False)
    client.generate(model="demo")
    check("ollama: loaded", "demo" in [model.model for model in client.ps().models], True)
    check("ollama show", client.show("demo").details.family, "llama")
    error = refused("ollama: unknown model", ollama.ResponseError, lambda: client.chat(**ask | {"model": "other"}))
    check("ollama: unknown model: status", error.status_code, 404)


def thoughts_openai(client):
    ask = dict(model="thinker", messages=QUESTION, temperature=0, max_tokens=40, extra_body={"thinking_budget": 3})
    answer = client.chat.completions.create(**ask)
    message = answer.choices[0].message
    thought = message.model_extra["reasoning_content"]
    check("openai reasoning", bool(thought) and bool(message.content))
    check("openai reasoning: both names", message.model_extra["reasoning"], thought)
    check("openai reasoning: counted", answer.usage.completion_tokens_details.reasoning_tokens > 3)
    parts = [part.choices[0].delta for part in client.chat.completions.create(**ask, stream=True) if part.choices]
    told = "".join((part.model_extra or {}).get("reasoning_content") or "" for part in parts)
    check("openai reasoning, stream", told, thought)
    check("openai reasoning, stream: answer", "".join(part.content or "" for part in parts), message.content)
    off = client.chat.completions.create(**ask, reasoning_effort="none")
    check("openai reasoning: off", "reasoning_content" in off.choices[0].message.model_extra, False)
    schema = {"type": "json_schema", "json_schema": {"name": "lamp", "schema": LAMP, "strict": True}}
    formed = client.chat.completions.create(**ask, response_format=schema).choices[0].message
    check("openai reasoning: schema", isinstance(json.loads(formed.content)["on"], bool))
    check("openai reasoning: schema behind a thought", bool(formed.model_extra["reasoning_content"]))
    tools = [{"type": "function", "function": {"name": "lamp", "parameters": LAMP}}]
    for model in ("thinker", "coder"):
        called = client.chat.completions.create(**ask | {"model": model, "max_tokens": 300}, tools=tools,
                                                tool_choice="required", parallel_tool_calls=False)
        call = called.choices[0].message.tool_calls[0].function
        check(f"openai tools, {model}", (call.name, type(json.loads(call.arguments)["on"])), ("lamp", bool))
        with client.chat.completions.stream(**ask | {"model": model, "max_tokens": 300}, tools=tools,
                                            tool_choice="required", parallel_tool_calls=False) as stream:
            stream.until_done()
            final = stream.get_final_completion()
        check(f"openai tools, {model}, stream", final.choices[0].message.tool_calls[0].function.arguments, call.arguments)
    free = client.chat.completions.create(**ask | {"model": "coder"}, tools=tools)
    check("openai tools, coder: auto is text or calls", free.choices[0].finish_reason in ("stop", "length", "tool_calls"))

    ask = dict(model="thinker", input="What is 7 plus 5?", temperature=0, max_output_tokens=40,
               extra_body={"thinking_budget": 3})
    response = client.responses.create(**ask)
    check("openai responses: reasoning", [item.type for item in response.output], ["reasoning", "message"])
    thought = response.output[0].content[0].text
    check("openai responses: reasoning, counted", response.usage.output_tokens_details.reasoning_tokens > 3)
    with client.responses.stream(**ask) as stream:
        told = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        final = stream.get_final_response()
    check("openai responses: reasoning, stream", told, thought)
    check("openai responses: reasoning, final", final.output[0].content[0].text, thought)
    again = [{"role": "user", "content": "hi"}, response.output[0].model_dump(exclude_none=True),
             {"role": "assistant", "content": "yes"}, {"role": "user", "content": "so?"}]
    check("openai responses: reasoning comes back", client.responses.create(**ask | {"input": again}).status in
          ("completed", "incomplete"))


def thoughts_anthropic(url):
    client = anthropic.Anthropic(base_url=url, api_key=KEY)
    # The client sends any budget, although Anthropic's API has a minimum.
    ask = dict(model="thinker", max_tokens=40, messages=QUESTION, extra_body={"temperature": 0},
               thinking={"type": "enabled", "budget_tokens": 3})
    message = client.messages.create(**ask)
    check("anthropic thinking", [block.type for block in message.content], ["thinking", "text"])
    with client.messages.stream(**ask) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    check("anthropic thinking, stream", final.content[0].thinking, message.content[0].thinking)
    check("anthropic thinking, stream: signature", final.content[0].signature, message.content[0].signature)
    check("anthropic thinking, stream: events", "thinking" in kinds and "signature" in kinds)
    block = message.content[0].model_dump()
    talk = lambda block: QUESTION + [{"role": "assistant", "content": [block, {"type": "text", "text": "12"}]},  # noqa: E731
                                     {"role": "user", "content": "And 1 plus 1?"}]
    again = client.messages.create(**ask | {"messages": talk(block)})
    check("anthropic thinking: it comes back", again.content[0].type, "thinking")
    refused("anthropic thinking: a changed one is refused", anthropic.BadRequestError,
            lambda: client.messages.create(**ask | {"messages": talk(block | {"thinking": "other"})}))
    ask.pop("thinking")
    check("anthropic thinking: only when asked for", client.messages.create(**ask).content[0].type, "text")


def thoughts_ollama(url):
    client = ollama.Client(host=url, headers={"authorization": f"Bearer {KEY}"})
    ask = dict(model="thinker", messages=QUESTION, options={"temperature": 0, "num_predict": 8})
    answer = client.chat(**ask, think=True)
    check("ollama thinking", bool(answer.message.thinking))
    parts = client.chat(**ask, think=True, stream=True)
    check("ollama thinking, stream", "".join(part.message.thinking or "" for part in parts), answer.message.thinking)
    check("ollama thinking: off", client.chat(**ask, think=False).message.thinking, None)
    text = client.generate(model="thinker", prompt="What is 7 plus 5?", think=True, options=ask["options"])
    check("ollama generate: thinking", text.thinking, answer.message.thinking)
    tools = [{"type": "function", "function": {"name": "lamp", "description": "Switches.", "parameters": LAMP}}]
    called = client.chat(**ask | {"model": "coder", "options": {"temperature": 0}}, tools=tools)
    check("ollama tools, coder: auto is text or calls", called.done_reason in ("stop", "length"))


def images(url, client):
    """Sends an image through each client to a random vision model. The results must be equal."""
    image = (Path(__file__).resolve().parents[2] / "testdata/vision/images/wide.png").read_bytes()
    data = base64.b64encode(image).decode()
    text = {"type": "text", "text": "What is this?"}
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    ask = dict(model="seeing", temperature=0, max_tokens=6)
    answer = client.chat.completions.create(messages=[{"role": "user", "content": [part, text]}], logprobs=True, **ask)
    expected = answer.choices[0].message.content
    blind = client.chat.completions.create(messages=[{"role": "user", "content": [text]}], logprobs=True, **ask)
    first = [one.choices[0].logprobs.content[0].logprob for one in (answer, blind)]
    check("openai image: it is seen", first[0] != first[1])
    check("openai image: it has tokens", answer.usage.prompt_tokens >= blind.usage.prompt_tokens + 16)
    source = {"type": "base64", "media_type": "image/png", "data": data}
    message = anthropic.Anthropic(base_url=url, api_key=KEY).messages.create(
        model="seeing", max_tokens=6, extra_body={"temperature": 0},
        messages=[{"role": "user", "content": [{"type": "image", "source": source}, text]}])
    check("anthropic image", message.content[0].text, expected)
    other = ollama.Client(host=url, headers={"authorization": f"Bearer {KEY}"})
    answer = other.chat(model="seeing", messages=[{"role": "user", "content": "What is this?", "images": [image]}],
                        options={"temperature": 0, "num_predict": 6})
    check("ollama image", answer.message.content, expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--device", help="run the models on this device, such as xdna2")
    parser.add_argument("--frameworks", action="append", default=[], metavar="PYTHON", help="ask this Python's frameworks too")
    parser.add_argument("--node", action="store_true", help="ask the packages of npm too")
    parser.add_argument("--open-webui", metavar="COMMAND", help="start this Open WebUI in front of the server too")
    args = parser.parse_args()
    environment = dict(os.environ, MILLRACE_API_KEY=KEY)
    folder = tempfile.TemporaryDirectory()
    command = [args.binary, "serve", "demo", "--port", "0", "--quiet", "--ctx", "2048"]
    models = ["demo", "seeing", "thinker", "coder"]
    # The vision encoder is a separate file, as for llama.cpp, in another folder than the model.
    model, encoder = folder.name + "/seeing.gguf", folder.name + "/encoder"
    subprocess.run([args.binary, "synth", "gemma-tiny", model, "--type", "F32", "--vision", "--quiet"], check=True)
    os.rename(folder.name + "/mmproj-seeing.gguf", encoder)
    command += [f"seeing={model}", "--mmproj", f"seeing={encoder}"]
    for name, template in (("thinker", THINKER), ("coder", CODER)):
        path = Path(folder.name) / f"{name}.gguf"
        path.write_bytes(rewritten(template))
        command.append(f"{name}={path}")
    if args.device:
        command += ["--device", args.device]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        url = server.stdout.readline().strip()
        clients = ", ".join(f"{name} {version(name)}" for name in ("openai", "anthropic", "ollama"))
        print(f"{url}, on {args.device or 'the CPU'}; {clients}")
        client = openai.OpenAI(base_url=url + "/v1", api_key=KEY)
        openai_chat(client)
        openai_forms(client)
        openai_rest(client, models)
        openai_embeddings(client, args.device)
        receipt(client, args.device)
        asyncio.run(openai_many(url))
        anthropic_messages(url)
        ollama_calls(url, models, args.device)
        thoughts_openai(client)
        thoughts_anthropic(url)
        thoughts_ollama(url)
        images(url, client)
        here = Path(__file__).parent
        for python in args.frameworks:
            check(f"frameworks of {python}", subprocess.run([python, here / "frameworks.py", url]).returncode, 0)
        if args.open_webui:
            check("Open WebUI", subprocess.run([sys.executable, here / "open_webui.py", url, args.open_webui]).returncode, 0)
        for script in ("check.mjs", "vercel.mjs") if args.node else ():
            run = subprocess.run(["node", here / script, url, KEY, args.device or "cpu", *models])
            check(script, run.returncode, 0)
    finally:
        server.send_signal(signal.SIGTERM)
        check("the server ends when asked to", server.wait(timeout=30), 0)
    print(f"{len(failures)} failed" if failures else "all passed")
    sys.exit(bool(failures))


main()
