"""Writes the licences of the shipped code: a table, the full texts, and an SBOM in CycloneDX.

    python3 tools/package/licenses.py table > docs/licenses.md
    python3 tools/package/licenses.py texts [--static] > THIRD-PARTY.txt
    python3 tools/package/licenses.py sbom  [--static] > millrace.cdx.json
    python3 tools/package/licenses.py check         # checks the table, and that every licence is in ALLOWED

Shipped code is everything linked into the program, the Python module, the C library and the plugin for ggml on Linux. Code that only builds
or tests them does not count. All of them contain Rust's standard library; --static adds the other parts of a musl program.
"""

import html
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Manifests, and the shipped packages of each.
SHIPPED = {
    "Cargo.toml": ("millrace-cli", "millrace-capi", "millrace-ggml-plugin"),
    "crates/python/Cargo.toml": ("millrace-python",),
}
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
# Each of these lets a program be shipped under any terms, if its notice is included.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}
# Libraries linked by the compiler: name, licence, owner, and whether only static programs have it.
RUNTIME = (
    ("Rust's standard library", "MIT OR Apache-2.0", "The Rust Project Developers (see https://thanks.rust-lang.org)", False),
    ("musl", "MIT", "2005-2020 Rich Felker, et al.", True),
    ("LLVM's libunwind", "Apache-2.0 WITH LLVM-exception", "the LLVM Project (see https://llvm.org)", True),
)
NOTICES = re.compile(r"^(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)


def metadata(manifest, target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--manifest-path", manifest, "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def shipped():
    """Third-party packages in the shipped code, by name and version."""
    found = {}
    for manifest, target in itertools.product(SHIPPED, TARGETS):
        data = metadata(manifest, target)
        packages = {package["id"]: package for package in data["packages"]}
        nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
        todo = [id for id, package in packages.items() if package["name"] in SHIPPED[manifest]]
        seen = set(todo)
        while todo:
            for edge in nodes[todo.pop()]["deps"]:
                package = packages[edge["pkg"]]
                is_linked = any(kind["kind"] is None for kind in edge["dep_kinds"])
                is_macro = any("proc-macro" in part["kind"] for part in package["targets"])
                if is_linked and not is_macro and edge["pkg"] not in seen:
                    seen.add(edge["pkg"])
                    todo.append(edge["pkg"])
        others = (packages[id] for id in seen)
        found |= {(p["name"], p["version"]): p for p in others if p["source"] is not None}
    return [found[key] for key in sorted(found)]


def expression(package):
    # Old manifests write `MIT/Apache-2.0` for SPDX's `OR`.
    return (package["license"] or "").replace("/", " OR ")


def allows(text):
    """Whether allowed licences alone satisfy a licence expression: an OR of ANDs, with parentheses."""
    tokens = re.findall(r"\(|\)|[^\s()]+", text)

    def alternatives():
        met = together()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = together() or met
        return met

    def together():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        if not tokens:
            return False
        token = tokens.pop(0)
        if token == "(":
            met = alternatives()
            return bool(tokens) and tokens.pop(0) == ")" and met
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token += " WITH " + (tokens.pop(0) if tokens else "")
        return token in ALLOWED

    return alternatives() and not tokens


def table(packages):
    lines = [
        "# Licences of dependencies",
        "",
        "`tools/package/licenses.py table` writes this page. It lists what the program, the Python module, the C library and the plugin",
        "for ggml are linked of. `texts` prints every licence in full, `sbom` a CycloneDX file: the wheel, the image, the Debian package",
        "and the archive bring both along. `check`, which the gate runs, compares this page and refuses licences that are not allowed.",
        "",
        "| crate | licence |",
        "|---|---|",
    ]
    # Without versions, so that the page changes only if a crate is added or removed.
    lines += sorted({f"| `{p['name']}` | {expression(p)} |" for p in packages})
    lines += ["", "The compiler links more:", "", "| | licence | in |", "|---|---|---|"]
    lines += [f"| {name} | {licence} | {'static programs' if is_static else 'all'} |" for name, licence, _, is_static in RUNTIME]
    return "\n".join(lines) + "\n"


def notices(package):
    folder = Path(package["manifest_path"]).parent
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and NOTICES.match(path.name)]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def rustc(*arguments):
    return subprocess.run(["rustc", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def runtime(is_static):
    return [row for row in RUNTIME if is_static or not row[3]]


def runtime_texts(is_static):
    """Licences of the libraries that the compiler links, and of the crates in its standard library."""
    # The permission text is the same for every MIT licence; the copyright line differs.
    _, permission = (ROOT / "LICENSE-MIT").read_text(encoding="utf-8").split("\n\nPermission", 1)
    parts = []
    for name, licence, holder, _ in runtime(is_static):
        parts += ["=" * 100, f"{name}: {licence}", f"Copyright (c) {holder}\n"]
        parts += [f"Permission{permission.rstrip()}" if "MIT" in licence else (ROOT / "LICENSE-APACHE").read_text(encoding="utf-8"), ""]
        if "LLVM-exception" in licence:
            parts += ["The exception: https://spdx.org/licenses/LLVM-exception.html\n"]
    page = Path(rustc("--print", "sysroot")) / "share" / "doc" / "rust" / "COPYRIGHT-library.html"
    if page.exists():
        text = html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
        parts += ["=" * 100, re.sub(r"\s*\n\s*\n\s*", "\n\n", text).strip()]
    else:
        parts += [f"What the standard library of {rustc('--version')} is made of: https://www.rust-lang.org/policies/licenses"]
    return parts


def texts(packages, is_static):
    parts = ["Millrace is linked of the crates below. Each brings its licence.\n"]
    for package in packages:
        parts.append("=" * 100)
        parts.append(f"{package['name']} {package['version']}: {expression(package)}")
        parts.append(f"{package['repository'] or ''}\n")
        parts += notices(package) or [f"(the crate has no file of its licence, {expression(package)})"]
        parts.append("")
    return "\n".join(parts + runtime_texts(is_static)) + "\n"


def sbom(packages, is_static):
    version = next(p["version"] for p in metadata("Cargo.toml", TARGETS[0])["packages"] if p["name"] == "millrace-cli")
    components = [
        {
            "type": "library",
            "name": p["name"],
            "version": p["version"],
            "purl": f"pkg:cargo/{p['name']}@{p['version']}",
            "licenses": [{"expression": expression(p)}],
        }
        for p in packages
    ]
    for name, licence, _, _ in runtime(is_static):
        component = {"type": "library", "name": name, "licenses": [{"expression": licence}]}
        if name.startswith("Rust"):
            component["version"] = rustc("--version").split()[1]
        components.append(component)
    root = {"type": "application", "name": "millrace", "version": version, "bom-ref": "millrace"}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": components,
    }
    return json.dumps(bom, indent=1) + "\n"


def check(packages):
    bad = [f"{p['name']} {p['version']}: {expression(p)!r}" for p in packages if not allows(expression(p))]
    if bad:
        sys.exit("licences that are not allowed:\n" + "\n".join(bad))
    page = ROOT / "docs" / "licenses.md"
    if page.read_text(encoding="utf-8") != table(packages):
        sys.exit("docs/licenses.md is old: python3 tools/package/licenses.py table > docs/licenses.md")
    return f"{len(packages)} crates, every licence allowed\n"


def main():
    is_static = "--static" in sys.argv[2:]
    actions = {
        "table": table,
        "texts": lambda packages: texts(packages, is_static),
        "sbom": lambda packages: sbom(packages, is_static),
        "check": check,
    }
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in actions or any(a != "--static" for a in sys.argv[2:]):
        sys.exit(f"usage: licenses.py {'|'.join(actions)} [--static]")
    for text, expected in [("MIT OR GPL-3.0", True), ("MIT AND GPL-3.0", False), ("(MIT OR X) AND ISC", True), ("", False)]:
        assert allows(text) == expected, text
    sys.stdout.write(actions[sys.argv[1]](shipped()))


if __name__ == "__main__":
    main()
