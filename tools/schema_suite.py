#!/usr/bin/env python3
"""Runs the JSON Schema Test Suite through the grammars that constrain answers to a schema.

    cargo build -p millrace-server --example held_schemas
    tools/schema_suite.py SUITE [--llama-cpp json_schema_to_grammar.py] [--failures]

SUITE is the folder `tests/draft2020-12` of the suite; the source package of `jsonschema` brings it (`json/tests`). A schema is
held or refused. For a held schema, the grammar must accept the instances that the suite calls valid, and no others. An invalid
instance that it accepts is an error of Millrace. A valid instance that it does not accept is an error too, or another spelling of
the same JSON (`1.0` for 1, properties in another order).

With --llama-cpp, the same instances go through the grammars of llama.cpp's converter, read as GBNF.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def orders(schema, names):
    """The names of properties, in the order of the schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                names.extend(name for name in value if name not in names)
            orders(value, names)
    elif isinstance(schema, list):
        for value in schema:
            orders(value, names)
    return names


def ordered(value, names):
    if isinstance(value, dict):
        known = [name for name in names if name in value]
        rest = [name for name in value if name not in names]
        return {name: ordered(value[name], names) for name in known + rest}
    if isinstance(value, list):
        return [ordered(item, names) for item in value]
    return value


def groups(folder):
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text()):
            names = orders(group["schema"], [])
            texts = [json.dumps(ordered(test["data"], names), ensure_ascii=False) for test in group["tests"]]
            yield path.stem, group, texts


def ask(program, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def converter(path):
    spec = importlib.util.spec_from_file_location("json_schema_to_grammar", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def convert(schema):
        made = module.SchemaConverter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        resolved = made.resolve_refs(json.loads(json.dumps(schema)), "stdin")
        made.visit(resolved, "")
        return made.format_grammar()

    return convert


def report(title, found, answers, failures):
    counts = dict.fromkeys(("schemas", "refused", "right", "wide", "narrow", "unasked"), 0)
    refusals, wrong = {}, []
    for (stem, group, texts), answer in zip(found, answers):
        counts["schemas"] += 1
        if "refused" in answer:
            counts["refused"] += 1
            counts["unasked"] += len(texts)
            words = answer["refused"].split(" at ")[0][:70]
            refusals[words] = refusals.get(words, 0) + 1
            continue
        for test, text, taken in zip(group["tests"], texts, answer["accepted"]):
            if taken == test["valid"]:
                counts["right"] += 1
                continue
            counts["wide" if taken else "narrow"] += 1
            wrong.append(("takes" if taken else "refuses", stem, group["description"], test["description"], text))
    n_held = counts["schemas"] - counts["refused"]
    n_asked = counts["right"] + counts["wide"] + counts["narrow"]
    print(f"{title}: {n_held} of {counts['schemas']} schemas held, {counts['refused']} refused")
    print(
        f"  of their {n_asked} instances {counts['right']} right ({counts['right'] / max(n_asked, 1):.1%}), "
        f"{counts['wide']} invalid ones taken, {counts['narrow']} valid ones not taken"
    )
    print(f"  of all {n_asked + counts['unasked']} instances {counts['right'] / max(n_asked + counts['unasked'], 1):.1%} right")
    if failures:
        for words, n in sorted(refusals.items(), key=lambda item: -item[1]):
            print(f"  {n:4} × {words}")
        for line in wrong:
            print("  " + " | ".join(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("--program", default=ROOT / "target/debug/examples/held_schemas", type=pathlib.Path)
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="llama.cpp's examples/json_schema_to_grammar.py")
    parser.add_argument("--failures", action="store_true", help="list what was refused, and what was wrong")
    args = parser.parse_args()
    found = list(groups(args.suite))
    if not found:
        sys.exit(f"{args.suite} has no tests")
    requests = [{"schema": group["schema"], "texts": texts} for _, group, texts in found]
    report("millrace", found, ask(args.program, requests), args.failures)
    if args.llama_cpp:
        convert = converter(args.llama_cpp)
        requests, refused = [], {}
        for i, (_, group, texts) in enumerate(found):
            try:
                requests.append({"gbnf": convert(group["schema"]), "texts": texts})
            except Exception as error:  # The converter may raise any exception.
                refused[i] = {"refused": f"{type(error).__name__}: {error}"}
        answers = iter(ask(args.program, requests))
        answers = [refused[i] if i in refused else next(answers) for i in range(len(found))]
        report("llama.cpp's converter", found, answers, args.failures)


if __name__ == "__main__":
    main()
