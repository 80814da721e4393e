"""Build backend of the Python package. It adds the program `millrace` and the licences of linked code, then calls maturin's.

maturin builds a library or a program, not both, so the wheel has the program among its scripts. MILLRACE_WHEEL_PROFILE is the cargo
profile of both (default: `release`). MILLRACE_WHEEL_TARGET is a triple; with a glibc version in it, cargo-zigbuild links for that
version. MILLRACE_WHEEL_PROGRAM is a program that was already built.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "target" / "package" / "millrace_llm.data"
# pyproject.toml names both files of this folder.
NOTICES = ROOT / "target" / "package" / "notices"
PROFILE = os.environ.get("MILLRACE_WHEEL_PROFILE", "release")
TARGET = os.environ.get("MILLRACE_WHEEL_TARGET", "")
PROGRAM = os.environ.get("MILLRACE_WHEEL_PROGRAM", "")
# The module is a separate workspace. A common target folder builds common crates once.
os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))


def build_program() -> None:
    """Builds `millrace`, unless a program is given, and puts it into maturin's folder of scripts."""
    triple = TARGET.split(".")[0]
    built = Path(PROGRAM).resolve() if PROGRAM else _build(triple)
    scripts = DATA / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    program = scripts / "millrace"
    program.unlink(missing_ok=True)
    shutil.copy2(built, program)
    strip = _strip(triple.split("-")[0] or platform.machine())
    if strip is None:
        print(f"not stripped: no program here strips for {triple} (Debian: llvm)", file=sys.stderr)
    else:
        subprocess.run([strip, str(program)], check=True)


def _build(triple: str) -> Path:
    cargo = ["cargo", "zigbuild"] if "." in TARGET else ["cargo", "build"]
    command = [*cargo, "--locked", "--profile", PROFILE, "--package", "millrace-cli", "--bin", "millrace"]
    if TARGET:
        command += ["--target", TARGET]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = "debug" if PROFILE == "dev" else PROFILE
    return Path(os.environ["CARGO_TARGET_DIR"]) / triple / folder / "millrace"


def _strip(architecture: str):
    """A `strip` for the architecture. This machine's own supports no other."""
    names = [f"{architecture}-linux-gnu-strip", "llvm-strip"]
    if architecture == platform.machine():
        names.insert(0, "strip")
    # Debian's llvm-strip has a version in its name, unless the package `llvm` is installed.
    found = [shutil.which(name) for name in names]
    found += sorted(str(path) for path in Path("/usr/lib").glob("llvm-*/bin/llvm-strip"))
    return next((path for path in found if path), None)


def write_notices() -> None:
    """Writes licences and the SBOM into the folder that maturin reads."""
    NOTICES.mkdir(parents=True, exist_ok=True)
    for action, name in (("texts", "THIRD-PARTY.txt"), ("sbom", "millrace.cdx.json")):
        command = [sys.executable, str(ROOT / "tools" / "package" / "licenses.py"), action]
        with open(NOTICES / name, "wb") as file:
            subprocess.run(command, cwd=ROOT, check=True, stdout=file)


def _arguments() -> None:
    arguments = ["--locked", "--profile", PROFILE]
    if TARGET:
        triple, _, glibc = TARGET.partition(".")
        arguments += ["--target", triple]
        if glibc:
            arguments += ["--zig", "--compatibility", "manylinux_" + glibc.replace(".", "_")]
    given = os.environ.get("MATURIN_PEP517_ARGS", "")
    os.environ["MATURIN_PEP517_ARGS"] = " ".join([*arguments, given]).strip()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build_program()
    write_notices()
    _arguments()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    build_program()
    write_notices()
    _arguments()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    # maturin requires this folder, and packs the files that git tracks.
    DATA.mkdir(parents=True, exist_ok=True)
    write_notices()
    return maturin.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    DATA.mkdir(parents=True, exist_ok=True)
    write_notices()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
