"""Runs Open WebUI, unmodified, in front of a running server: python3 open_webui.py URL COMMAND

check.py starts the server, and this script if it gets the command `open-webui` of an environment. Most requirements of that package are
for other uses. It starts without PyTorch, transformers and speech: `pip install --no-deps open-webui`, then the other requirements. The
script configures it by environment variables, without accounts. Its own routes are called, over its OpenAI and its Ollama connection to
the server, with and without streaming.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from checks import ANSWER, KEY, QUESTION, check, failures

PORT = 9876
OWN = f"http://127.0.0.1:{PORT}"


def environment(url, folder):
    """Environment with both connections to the server. No request leaves this computer."""
    return os.environ | {
        "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "a secret of the check", "DATA_DIR": folder,
        "OPENAI_API_BASE_URL": url + "/v1", "OPENAI_API_KEY": KEY,
        "ENABLE_OLLAMA_API": "True", "OLLAMA_BASE_URL": url,
        "OLLAMA_API_CONFIGS": json.dumps({"0": {"enable": True, "key": KEY}}),
        "RAG_EMBEDDING_ENGINE": "openai", "RAG_EMBEDDING_MODEL": "demo",
        "RAG_OPENAI_API_BASE_URL": url + "/v1", "RAG_OPENAI_API_KEY": KEY,
        "OFFLINE_MODE": "True", "ENABLE_VERSION_UPDATE_CHECK": "False", "DO_NOT_TRACK": "true",
        "ANONYMIZED_TELEMETRY": "false", "SCARF_NO_ANALYTICS": "true",
    }


def ask(path, body=None, token=None):
    """Text of the answer to a request."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        return urllib.request.urlopen(urllib.request.Request(OWN + path, data, headers), timeout=120).read().decode()
    except urllib.error.HTTPError as error:
        return json.dumps({"status": error.code, "error": error.read().decode()})


def wait(process):
    for _ in range(600):
        if process.poll() is not None:
            return False
        try:
            return bool(ask("/health"))
        except OSError:
            time.sleep(1)
    return False


def events(text):
    """JSON objects of server-sent events."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def written(text):
    choices = [choice for event in events(text) for choice in event.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def by_openai(token):
    models = [model["id"] for model in json.loads(ask("/api/models", token=token))["data"]]
    check("open-webui: models", "demo" in models)
    chat = {"model": "demo", "messages": QUESTION, "temperature": 0}
    answer = json.loads(ask("/api/chat/completions", chat | {"stream": False}, token))
    check("open-webui chat", answer.get("choices", [{}])[0].get("message", {}).get("content", answer), ANSWER)
    check("open-webui chat, stream", written(ask("/api/chat/completions", chat | {"stream": True}, token)), ANSWER)
    answer = json.loads(ask("/openai/chat/completions", chat | {"stream": False}, token))
    check("open-webui, its route of OpenAI", answer.get("choices", [{}])[0].get("message", {}).get("content", answer), ANSWER)
    answer = json.loads(ask("/openai/responses", {"model": "demo", "input": QUESTION, "temperature": 0}, token))
    texts = [part["text"] for item in answer.get("output", []) for part in item.get("content", [])]
    check("open-webui responses", texts or answer, [ANSWER])
    answer = json.loads(ask("/api/embeddings", {"model": "demo", "input": ["a cat", "a dog"]}, token))
    check("open-webui embeddings", [row["index"] for row in answer.get("data", [])], [0, 1])
    body = {"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0}
    answer = json.loads(ask("/api/v1/messages", body, token))
    check("open-webui messages", [part.get("text") for part in answer.get("content", [])] or answer, [ANSWER])


def by_ollama(token):
    tags = json.loads(ask("/ollama/api/tags", token=token))
    names = [model["model"] for model in tags.get("models", [])]
    name = next((name for name in names if name.startswith("demo")), None)
    check("open-webui: tags", name is not None or names)
    check("open-webui: version", "version" in json.loads(ask("/ollama/api/version", token=token)))
    chat = {"model": name, "messages": QUESTION, "options": {"temperature": 0}}
    answer = json.loads(ask("/ollama/api/chat", chat | {"stream": False}, token))
    check("open-webui, Ollama's chat", answer.get("message", {}).get("content", answer), ANSWER)
    lines = [json.loads(line) for line in ask("/ollama/api/chat", chat | {"stream": True}, token).splitlines()]
    text = "".join(line.get("message", {}).get("content", "") for line in lines)
    check("open-webui, Ollama's chat, stream", text or lines, ANSWER)
    answer = json.loads(ask("/ollama/api/show", {"model": name}, token))
    check("open-webui, Ollama's show", bool(answer.get("details")) or answer)
    answer = json.loads(ask("/ollama/api/embed", {"model": name, "input": ["a cat", "a dog"]}, token))
    check("open-webui, Ollama's embed", len(answer.get("embeddings", [])) or answer, 2)
    answer = json.loads(ask("/ollama/api/embeddings", {"model": name, "prompt": "a cat"}, token))
    check("open-webui, Ollama's embeddings", len(answer.get("embedding", [])) or answer, 256)
    said = {"model": name, "prompt": QUESTION[0]["content"], "options": {"temperature": 0}}
    lines = [json.loads(line) for line in ask("/ollama/api/generate", said, token).splitlines()]
    check("open-webui, Ollama's generate", "".join(line.get("response", "") for line in lines) or lines, ANSWER)
    own = {"model": name, "messages": QUESTION, "temperature": 0, "stream": False}
    answer = json.loads(ask("/ollama/v1/chat/completions", own, token))
    check("open-webui, OpenAI's chat by Ollama's way", answer.get("choices", [{}])[0].get("message", {}).get("content", answer), ANSWER)
    answer = json.loads(ask("/ollama/v1/models", token=token))
    check("open-webui, OpenAI's models by Ollama's way", name in [model["id"] for model in answer.get("data", [])] or answer)
    called = ask("/ollama/verify", {"url": sys.argv[1], "key": KEY}, token)
    check("open-webui verifies Ollama's way", "version" in json.loads(called) or called)
    called = ask("/openai/verify", {"url": sys.argv[1] + "/v1", "key": KEY}, token)
    check("open-webui verifies OpenAI's way", "data" in json.loads(called) or called)
    # The server downloads no models. The page must report that, and the request must end.
    pulled = ask("/ollama/api/pull", {"model": "other"}, token)
    check("open-webui, Ollama's pull is refused", "/api/pull" in pulled or pulled)
    # The page shows the loaded models, and unloads them.
    check("open-webui, Ollama's ps", name in ask("/ollama/api/ps", token=token))
    called = ask("/ollama/api/unload", {"model": name}, token)
    check("open-webui, Ollama's unload", json.loads(called).get("status", called), True)
    check("open-webui, Ollama's ps: unloaded", f'"{name}"' in ask("/ollama/api/ps", token=token), False)


def main():
    url, command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        started = [command, "serve", "--host", "127.0.0.1", "--port", str(PORT)]
        process = subprocess.Popen(started, env=environment(url, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not wait(process):
                sys.exit("Open WebUI did not start; start it by hand to see why")
            token = json.loads(ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
            by_openai(token)
            by_ollama(token)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    sys.exit(bool(failures))


main()
