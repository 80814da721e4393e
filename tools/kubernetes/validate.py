"""Checks manifests against the schemas of custom resources, and refuses unknown fields.

    pip install jsonschema pyyaml
    python tools/kubernetes/validate.py tools/kubernetes/gateway.yaml --crd inferencepools.yaml --crd httproutes.yaml

The `--crd` files are CustomResourceDefinitions; docs/kubernetes.md has their addresses. Rules in CEL (`x-kubernetes-validations`) are not
evaluated. The exit code is 1 if a manifest breaks its schema, or no file has the schema of its kind.
"""

import argparse

import jsonschema
import yaml


def strict(schema):
    """The schema without unnamed fields in its objects, and with Kubernetes' own keywords translated to JSON Schema."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    out = {key: strict(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not is_open:
        out["additionalProperties"] = False
    return out


def schemas(paths):
    """Schemas by API version and kind."""
    found = {}
    for path in paths:
        with open(path) as file:
            for crd in filter(None, yaml.safe_load_all(file)):
                for version in crd["spec"]["versions"]:
                    schema = strict(version["schema"]["openAPIV3Schema"])
                    # Every object has metadata, which the schemas name without describing it.
                    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
                    found[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = schema
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", nargs="+")
    parser.add_argument("--crd", action="append", required=True)
    args = parser.parse_args()
    known = schemas(args.crd)
    failed = False
    for path in args.manifests:
        with open(path) as file:
            documents = list(filter(None, yaml.safe_load_all(file)))
        for document in documents:
            name = f"{path}: {document['kind']} {document['metadata']['name']}"
            schema = known.get((document["apiVersion"], document["kind"]))
            if schema is None:
                print(f"FAIL {name}: no schema of {document['apiVersion']}")
                failed = True
                continue
            errors = list(jsonschema.Draft202012Validator(schema).iter_errors(document))
            for error in errors:
                print(f"FAIL {name}: {'/'.join(map(str, error.absolute_path))}: {error.message}")
            failed |= bool(errors)
            if not errors:
                print(f"ok   {name} ({document['apiVersion']})")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
