"""Runs the static program like a pod of tools/kubernetes/server.yaml: its arguments, environment and user, no capabilities, a read-only root.

    tools/package/static.sh
    sudo python3 tools/kubernetes/pod.py target/x86_64-unknown-linux-musl/release/millrace [--model FILE.gguf] [--port 8080]

The root holds the image's contents (the program and empty folders) and the model (default: the demo's file) at /models/model.gguf. The
script then sends the requests of the manifest's probes, its service and a router's scrape, and ends the pod as Kubernetes does. It runs
only on Linux, and needs PyYAML, and root for the namespaces. Seccomp, CPU and memory limits, and the network between pods belong to the
container runtime, and are not tested.
"""

import argparse
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
API_KEY = "a-key"

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
N_CAPABILITIES = 64

libc = ctypes.CDLL(None, use_errno=True)
problems = []


def check(name, ok, found=""):
    print(f"{'ok  ' if ok else 'FAIL'}  {name}" + ("" if ok else f": {found!r}"), flush=True)
    if not ok:
        problems.append(name)


def system(name, result):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source, target, kind, flags):
    encode = lambda text: text.encode() if text else None  # noqa: E731
    system(f"mount {target}", libc.mount(encode(source), encode(str(target)), encode(kind), flags, None))


def enter(root, user):
    """Called in the child: enters a root that is read-only except for /tmp and /cache, and drops all capabilities."""
    system("unshare", libc.unshare(CLONE_NEWNS))
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount(str(root), root, None, MS_BIND)
    mount("/proc", root / "proc", None, MS_BIND | MS_REC)
    for folder in ("tmp", "cache"):
        mount("tmpfs", root / folder, "tmpfs", 0)
        os.chmod(root / folder, 0o1777)
    mount(None, root, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.chroot(root)
    os.chdir("/")
    for capability in range(N_CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    system("no new privileges", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def ask(port, path, body=None, key=None, host="millrace"):
    """Status and text of an answer; status 0 if the connection fails."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Host": f"{host}:8080", "Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""


def wait_for(condition, seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.1)
    return False


def ask_as_a_cluster_does(process, container, user, port):
    probe = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    ready = wait_for(lambda: process.poll() is not None or ask(port, probe["startup"])[0] == 200, 120)
    check(f"the startup probe {probe['startup']} passes", ready and process.poll() is None, process.poll())
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":\t" in line)
    check(f"it is user {user}", status["Uid"].split() == [str(user)] * 4, status["Uid"])
    check("it has no capabilities", int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, status["CapBnd"])
    options = [line.split() for line in Path(f"/proc/{process.pid}/mounts").read_text().splitlines()]
    check("its root cannot be written", any(at == "/" and "ro" in how.split(",") for _, at, _, how, *_ in options), options)
    for name in ("readiness", "liveness"):
        check(f"the {name} probe {probe[name]} passes", ask(port, probe[name])[0] == 200)
    status, metrics = ask(port, "/metrics")
    check("metrics need no key", status == 200, status)
    for metric in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "cache_config_info"):
        check(f"metrics have vllm:{metric}", f"vllm:{metric}{{" in metrics)
    body = {"model": "model", "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}
    path = "/v1/chat/completions"
    check("a request without the key is refused", ask(port, path, body)[0] == 401)
    for host in ("millrace", "millrace.default.svc.cluster.local"):
        status, text = ask(port, path, body, API_KEY, host)
        check(f"host {host} gets an answer", status == 200 and json.loads(text)["choices"][0]["message"]["content"], text)
    check("another host is refused", ask(port, path, body, API_KEY, "elsewhere.example")[0] in (400, 403, 421))


def end_as_a_cluster_does(process, port, grace_s):
    """Sends SIGTERM, and waits for at most the grace period."""
    process.send_signal(signal.SIGTERM)
    check("a pod that ends is not ready, and answers still", wait_for(lambda: ask(port, "/ready")[0] == 503, 4))
    try:
        code = process.wait(timeout=grace_s)
        check("it ends within terminationGracePeriodSeconds, with code 0", code == 0, code)
    except subprocess.TimeoutExpired:
        check("it ends within terminationGracePeriodSeconds", False, grace_s)


def refuse_a_taken_port(port):
    """Stops the script if the port is taken, since another server would get the pod's requests."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", port))
        except OSError as error:
            sys.exit(f"pod.py: port {port}: {error}; choose another with --port")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--model", type=Path, default=HERE.parents[1] / "models" / "demo" / "demo.gguf")
    parser.add_argument("--port", type=int, default=8080, help="in place of the manifest's")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("pod.py: it needs root, for namespaces and a root of its own")
    refuse_a_taken_port(args.port)
    with open(HERE / "server.yaml") as file:
        deployment = next(document for document in yaml.safe_load_all(file) if document["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    container, user = pod["containers"][0], pod["securityContext"]["runAsUser"]
    said = subprocess.run([args.program.resolve(), "--version"], check=True, capture_output=True, text=True).stdout.split()
    check("the manifest's image is of the program's version", container["image"] == ":".join(said[:2]), (container["image"], said))
    arguments = [f"--port={args.port}" if argument.startswith("--port=") else argument for argument in container["args"]]

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("usr/bin", "tmp", "cache", "models", "proc"):
            (root / name).mkdir(parents=True)
        shutil.copy(args.program, root / "usr/bin/millrace")
        shutil.copy(args.model, root / "models/model.gguf")
        # The environment of the image and of the secret.
        environment = {"HF_HOME": "/cache/huggingface", "MILLRACE_NPU_CACHE": "/cache/npu", "MILLRACE_API_KEY": API_KEY}
        process = subprocess.Popen(["/usr/bin/millrace", *arguments], env=environment, preexec_fn=lambda: enter(root, user))
        try:
            ask_as_a_cluster_does(process, container, user, args.port)
            end_as_a_cluster_does(process, args.port, pod["terminationGracePeriodSeconds"])
        finally:
            process.kill()
            process.wait()
    raise SystemExit(int(bool(problems)))


if __name__ == "__main__":
    main()
