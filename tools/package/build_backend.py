"""The build backend of the Python package: maturin's, and before it the program `millrace`.

maturin builds a library or a program, not both; the wheel has the program among its scripts. MILLRACE_WHEEL_PROFILE names the
profile of both (`release`), MILLRACE_WHEEL_TARGET a triple, with a version of glibc where cargo-zigbuild is to link for one.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "target" / "package" / "millrace_llm.data"
PROFILE = os.environ.get("MILLRACE_WHEEL_PROFILE", "release")
TARGET = os.environ.get("MILLRACE_WHEEL_TARGET", "")
# The module is a workspace of its own; what both are built of is built once.
os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))


def build_program() -> None:
    """Builds `millrace` and puts it where maturin takes scripts from."""
    triple = TARGET.split(".")[0]
    cargo = ["cargo", "zigbuild"] if "." in TARGET else ["cargo", "build"]
    command = [*cargo, "--locked", "--profile", PROFILE, "--package", "millrace-cli", "--bin", "millrace"]
    if TARGET:
        command += ["--target", TARGET]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = "debug" if PROFILE == "dev" else PROFILE
    built = Path(os.environ["CARGO_TARGET_DIR"]) / triple / folder / "millrace"
    scripts = DATA / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    program = scripts / "millrace"
    program.unlink(missing_ok=True)
    shutil.copy2(built, program)
    strip = shutil.which("strip")
    if strip is not None and not TARGET:
        subprocess.run([strip, str(program)], check=True)


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
    _arguments()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    build_program()
    _arguments()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    # maturin looks for it, and takes the files that git knows.
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
