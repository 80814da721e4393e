"""Runs frameworks over the published clients, unmodified, against a running server: python3 frameworks.py URL

check.py starts this script, once for each given Python, and it checks the frameworks that are installed there. No request leaves this
computer. Tool calls are forced, since the built-in demo makes none on its own.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Stops all of them from sending reports and from looking up prices of models.
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1",
               "LANGCHAIN_TRACING_V2": "false", "DO_NOT_TRACK": "1"}

from checks import ANSWER, KEY, LAMP, QUESTION, check, failures
from pydantic import BaseModel, ConfigDict

TEXT = QUESTION[0]["content"]


class Lamp(BaseModel):
    """Switch the lamp."""

    # Without this, the demo invents more properties without end.
    model_config = ConfigDict(extra="forbid")
    on: bool


FUNCTION = {"type": "function", "function": {"name": "lamp", "description": "Switch the lamp.", "parameters": LAMP}}


def langchain(url):
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import ToolMessage
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    models = {
        "ChatOpenAI": ChatOpenAI(model="demo", base_url=url + "/v1", api_key=KEY, temperature=0, max_tokens=300),
        "ChatOpenAI, responses": ChatOpenAI(model="demo", base_url=url + "/v1", api_key=KEY, temperature=0,
                                            max_tokens=300, use_responses_api=True),
        "ChatAnthropic": ChatAnthropic(model="demo", base_url=url, api_key=KEY, max_tokens=300,
                                       model_kwargs={"extra_body": {"temperature": 0}}),
        "ChatOllama": ChatOllama(model="demo", base_url=url, temperature=0, num_predict=300,
                                 client_kwargs={"headers": {"authorization": f"Bearer {KEY}"}}),
    }
    for name, model in models.items():
        name = f"langchain {name}"
        check(name, model.invoke(TEXT).text, ANSWER)
        check(f"{name}, stream", "".join(part.text for part in model.stream(TEXT)), ANSWER)
        check(f"{name}, batch", [answer.text for answer in model.batch([TEXT, TEXT])], [ANSWER, ANSWER])
        if name.endswith("Ollama"):
            # Ollama's API cannot force a call.
            formed = model.with_structured_output(LAMP, method="json_schema").invoke(TEXT)
            check(f"{name}: form", type(formed["on"]), bool)
            continue
        forced = model.bind_tools([FUNCTION], tool_choice="lamp")
        call = forced.invoke(TEXT)
        check(f"{name}: tool", (call.tool_calls[0]["name"], type(call.tool_calls[0]["args"]["on"])), ("lamp", bool))
        whole = None
        for part in forced.stream(TEXT):
            whole = part if whole is None else whole + part
        check(f"{name}: tool, stream", type(whole.tool_calls[0]["args"]["on"]), bool)
        result = ToolMessage("the lamp is on", tool_call_id=call.tool_calls[0]["id"])
        after = model.bind_tools([FUNCTION]).invoke([("user", TEXT), call, result])
        check(f"{name}: after the tool", isinstance(after.text, str))
        formed = model.with_structured_output(Lamp, method="json_schema").invoke(TEXT)
        check(f"{name}: form", type(formed.on), bool)
    embeddings = OpenAIEmbeddings(model="demo", base_url=url + "/v1", api_key=KEY, check_embedding_ctx_length=False)
    vectors = embeddings.embed_documents(["The dog ran.", "The dog went."])
    check("langchain OpenAIEmbeddings", (len(vectors), round(sum(x * x for x in vectors[0]), 4)), (2, 1.0))


def llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(model="demo", api_base=url + "/v1", api_key=KEY, is_chat_model=True, context_window=1024,
                       is_function_calling_model=True, temperature=0, max_tokens=300, max_retries=0)
    messages = [ChatMessage(role="user", content=TEXT)]
    check("llama-index chat", model.chat(messages).message.content, ANSWER)
    check("llama-index chat, stream", "".join(part.delta for part in model.stream_chat(messages)), ANSWER)
    check("llama-index complete", model.complete(TEXT).text, ANSWER)
    formed = model.as_structured_llm(Lamp).chat(messages)
    check("llama-index form", type(formed.raw.on), bool)
    plain = OpenAILike(model="demo", api_base=url + "/v1", api_key=KEY, is_chat_model=False, temperature=0,
                       max_tokens=4, max_retries=0)
    check("llama-index completions", plain.complete("Once upon a time").text.startswith(", there"))
    llama_index_tools(model, messages)
    llama_index_embeddings(url)


def llama_index_tools(model, messages):
    """Forces a call, whole and streamed. Its function runs, and the result goes back to the model."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    switch = FunctionTool.from_defaults(fn=lambda on: f"switched {on}", name="lamp", description="Switch the lamp.", fn_schema=Lamp)
    ask = dict(tools=[switch], chat_history=messages, tool_required=True, allow_parallel_tool_calls=False)
    answer = model.chat_with_tools(**ask)
    call = model.get_tool_calls_from_response(answer)[0]
    check("llama-index tool", (call.tool_name, type(call.tool_kwargs["on"])), ("lamp", bool))
    last = list(model.stream_chat_with_tools(**ask))[-1]
    streamed = model.get_tool_calls_from_response(last)[0]
    check("llama-index tool, stream", streamed.tool_kwargs, call.tool_kwargs)
    done = model.predict_and_call([switch], chat_history=messages, tool_required=True, allow_parallel_tool_calls=False)
    check("llama-index tool is run", done.response, f"switched {call.tool_kwargs['on']}")
    result = ChatMessage(role="tool", content=done.response, additional_kwargs={"tool_call_id": call.tool_id})
    after = model.chat_with_tools(tools=[switch], chat_history=[*messages, answer.message, result])
    check("llama-index after the tool", isinstance(after.message.content, str))


def llama_index_embeddings(url):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    model = OpenAILikeEmbedding(model_name="demo", api_base=url + "/v1", api_key=KEY, max_retries=0)
    vectors = model.get_text_embedding_batch(["The dog ran.", "The dog went."])
    check("llama-index embeddings", (len(vectors), round(sum(x * x for x in vectors[0]), 4)), (2, 1.0))
    check("llama-index embedding of a question", len(model.get_query_embedding("Who ran?")), len(vectors[0]))


async def pydantic_ai(url):
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=url + "/v1", api_key=KEY)
    models = {
        "chat": OpenAIChatModel("demo", provider=provider),
        "responses": OpenAIResponsesModel("demo", provider=provider),
    }
    for name, model in models.items():
        name = f"pydantic-ai {name}"
        settings = {"temperature": 0, "max_tokens": 300}
        check(name, (await Agent(model, model_settings=settings).run(TEXT)).output, ANSWER)
        async with Agent(model, model_settings=settings).run_stream(TEXT) as stream:
            check(f"{name}, stream", await stream.get_output(), ANSWER)
        called = await Agent(model, output_type=ToolOutput(Lamp), model_settings=settings).run(TEXT)
        check(f"{name}: output of a tool", type(called.output.on), bool)
        formed = await Agent(model, output_type=NativeOutput(Lamp), model_settings=settings).run(TEXT)
        check(f"{name}: output of a form", type(formed.output.on), bool)


async def openai_agents(url):
    import agents
    import openai

    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY)

    @agents.function_tool
    def switch(on: bool) -> str:
        """Switch the lamp."""
        return f"switched {on}"

    for name, model in (("chat", agents.OpenAIChatCompletionsModel(model="demo", openai_client=client)),
                        ("responses", agents.OpenAIResponsesModel(model="demo", openai_client=client))):
        name = f"openai-agents {name}"
        settings = agents.ModelSettings(temperature=0, max_tokens=300)
        plain = agents.Agent(name="plain", model=model, model_settings=settings)
        check(name, (await agents.Runner.run(plain, TEXT)).final_output, ANSWER)
        streamed = agents.Runner.run_streamed(plain, TEXT)
        events = [event async for event in streamed.stream_events() if event.type == "raw_response_event"]
        deltas = [event.data.delta for event in events if event.data.type == "response.output_text.delta"]
        check(f"{name}, stream", "".join(deltas), ANSWER)
        formed = agents.Agent(name="formed", model=model, model_settings=settings, output_type=Lamp)
        check(f"{name}: form", type((await agents.Runner.run(formed, TEXT)).final_output.on), bool)
        forced = agents.ModelSettings(temperature=0, max_tokens=300, tool_choice="required")
        caller = agents.Agent(name="caller", model=model, model_settings=forced, tools=[switch],
                              tool_use_behavior="stop_on_first_tool")
        check(f"{name}: tool", (await agents.Runner.run(caller, TEXT)).final_output.startswith("switched "))


def lite_llm(url):
    import litellm

    for name, ask in (("openai", {"model": "openai/demo", "api_base": url + "/v1"}),
                      ("anthropic", {"model": "anthropic/demo", "api_base": url}),
                      ("hosted_vllm", {"model": "hosted_vllm/demo", "api_base": url + "/v1"})):
        ask |= {"api_key": KEY, "messages": QUESTION, "temperature": 0, "max_tokens": 300}
        name = f"litellm {name}"
        check(name, litellm.completion(**ask).choices[0].message.content, ANSWER)
        parts = litellm.completion(**ask, stream=True)
        check(f"{name}, stream", "".join(part.choices[0].delta.content or "" for part in parts), ANSWER)
        if name.endswith("vllm"):
            # LiteLLM removes `additionalProperties`, so the demo invents properties without end.
            continue
        called = litellm.completion(**ask, tools=[FUNCTION], tool_choice="required")
        arguments = called.choices[0].message.tool_calls[0].function.arguments
        check(f"{name}: tool", type(json.loads(arguments)["on"]), bool)
    vectors = litellm.embedding(model="openai/demo", api_base=url + "/v1", api_key=KEY, input=["The dog ran."])
    check("litellm embedding", round(sum(x * x for x in vectors.data[0]["embedding"]), 4), 1.0)


def instructor_modes(url):
    import instructor
    import openai

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=KEY), mode=mode)
        ask = dict(model="demo", messages=QUESTION, response_model=Lamp, max_tokens=300, max_retries=1)
        check(f"instructor {mode.name}", type(client.chat.completions.create(**ask).on), bool)


# Answer in aider's format `whole`, with a file's content. On its own, the demo writes none.
EDIT = r"lamp\.py\n```\non = (True|False)  # is 12\n```\n"


def aider(url):
    """Runs the command: a question about a file, then an edit of the whole file in a repository, which aider commits."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lamp.py")
        file.write_text("on = 0\n")
        # Without this file, aider looks up prices of models.
        cache = Path(folder, ".aider", "caches", "model_prices_and_context_window.json")
        cache.parent.mkdir(parents=True)
        cache.write_text(json.dumps({"none": {}}))
        run = aider_runs(url, folder, "--no-git", "--edit-format", "ask")
        check("aider: ends well", run.returncode, 0)
        check("aider: an answer", re.search(r"Tokens: \d+ sent, [1-9]\d* received", run.stdout) is not None)
        check("aider: a question changes nothing", file.read_text(), "on = 0\n")

        git = ["git", "-C", folder, "-c", "user.name=check", "-c", "user.email=check@localhost"]
        for command in (["init", "--quiet"], ["add", "lamp.py"], ["commit", "--quiet", "-m", "A lamp"]):
            subprocess.run([*git, *command], check=True)
        form = {"name": "openai/demo", "edit_format": "whole", "use_repo_map": False,
                "extra_params": {"extra_body": {"structured_outputs": {"regex": EDIT}}}}
        # JSON is valid YAML.
        Path(folder, "settings.yml").write_text(json.dumps([form]))
        run = aider_runs(url, folder, "--edit-format", "whole", "--model-settings-file", "settings.yml",
                         "--no-gitignore", "--commit-prompt", "Name the change.")
        check("aider: an edit ends well", run.returncode, 0)
        check("aider: the file is edited", re.fullmatch(r"on = (True|False)  # is 12\n", file.read_text()) is not None)
        commits = subprocess.run([*git, "log", "--format=%s", "--", "lamp.py"], text=True, capture_output=True, check=True)
        check("aider: the edit is committed", len(commits.stdout.splitlines()), 2)


def aider_runs(url, folder, *options):
    command = [str(Path(sys.executable).with_name("aider")), "--model", "openai/demo", "--openai-api-base", url + "/v1",
               "--openai-api-key", KEY, "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings",
               "--map-tokens", "0", *options, "--message", TEXT, "lamp.py"]
    return subprocess.run(command, cwd=folder, env=os.environ | {"HOME": folder}, text=True, stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL)


def mini_swe_agent(url):
    """Runs its loop of calls. Each step must call the tool `bash`; the demo's commands are recorded, not run."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.exceptions import Submitted
    from minisweagent.models.litellm_model import LitellmModel

    class Notes:
        """Environment that records commands without running them, and ends the work at the third."""

        def __init__(self):
            self.commands = []

        def execute(self, action, cwd=""):
            self.commands.append(action["command"])
            if len(self.commands) == 3:
                raise Submitted({"role": "exit", "content": "done", "extra": {"exit_status": "Submitted", "submission": "done"}})
            return {"output": "The lamp is on.", "returncode": 0, "exception_info": ""}

        def get_template_vars(self, **_):
            return {}

        def serialize(self):
            return {}

    for name, choice in (("required", "required"), ("named", {"type": "function", "function": {"name": "bash"}})):
        model = LitellmModel(model_name="openai/demo", cost_tracking="ignore_errors", model_kwargs={
            "api_base": url + "/v1", "api_key": KEY, "temperature": 0, "max_tokens": 300, "tool_choice": choice,
            "parallel_tool_calls": False})
        notes = Notes()
        agent = DefaultAgent(model, notes, system_template="Be brief.", instance_template="{{task}}", step_limit=5)
        end = agent.run(TEXT)
        name = f"mini-swe-agent, {name}"
        check(f"{name}: ends", end["exit_status"], "Submitted")
        check(f"{name}: commands", [type(command) for command in notes.commands], [str] * 3)
        results = [message for message in agent.messages if message.get("role") == "tool"]
        calls = [call["id"] for message in agent.messages for call in message.get("tool_calls") or []]
        check(f"{name}: results go back by their calls", [message["tool_call_id"] for message in results], calls[:2])


FRAMEWORKS = {
    "langchain-openai": langchain,
    "llama-index-llms-openai-like": llama_index,
    "pydantic-ai-slim": lambda url: asyncio.run(pydantic_ai(url)),
    "openai-agents": lambda url: asyncio.run(openai_agents(url)),
    "litellm": lite_llm,
    "instructor": instructor_modes,
    "aider-chat": aider,
    "mini-swe-agent": mini_swe_agent,
}


def main():
    n_asked = 0
    for package, ask in FRAMEWORKS.items():
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed beside {sys.executable}")
            continue
        ask(sys.argv[1])
        n_asked += 1
    check("a framework is installed", n_asked > 0)
    sys.exit(bool(failures))


main()
