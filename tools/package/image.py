#!/usr/bin/env python3
"""Writes the container image without a daemon: an OCI archive of the static program, its licences and three folders.

    python3 tools/package/image.py PROGRAM OUT.tar          PROGRAM: the archive that static.sh made, or an ELF file that needs no loader
    python3 tools/package/image.py --test OUT.tar           as root: unpacks the image as a container engine does, and runs it by chroot

`podman load -i OUT.tar`, `skopeo copy oci-archive:OUT.tar ...` and `docker load` (25 and newer) accept it. The image equals the
Dockerfile's. The same program gives the same bytes: file times are SOURCE_DATE_EPOCH, or else 0. The format is that of OCI's image
specification 1.1.
"""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# An unprivileged user, as in the Dockerfile.
USER = 65532
# OCI's name of an architecture, which is Go's, by the machine number in an ELF file.
ARCHITECTURES = {62: "amd64", 183: "arm64"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def read_program(path):
    """Bytes of a program, or of the program in an archive of static.sh."""
    if not tarfile.is_tarfile(path):
        return Path(path).read_bytes()
    with tarfile.open(path) as tar:
        found = [entry for entry in tar if entry.isfile() and entry.name.count("/") == 1 and entry.name.endswith("/millrace")]
        if len(found) != 1:
            sys.exit(f"{path} has no program `millrace` in its only folder: tools/package/static.sh makes such archives")
        return tar.extractfile(found[0]).read()


def architecture(path, program):
    """OCI's name of a static program's architecture."""
    if program[:4] != b"\x7fELF" or program[4] != 2 or program[5] != 1:
        sys.exit(f"{path}: no ELF file of 64 bits, little endian")
    machine = int.from_bytes(program[18:20], "little")
    first = int.from_bytes(program[32:40], "little")
    size, count = (int.from_bytes(program[at : at + 2], "little") for at in (54, 56))
    kinds = [int.from_bytes(program[at : at + 4], "little") for at in range(first, first + size * count, size)]
    if machine not in ARCHITECTURES:
        sys.exit(f"{path}: machine {machine} of ELF; there are {ARCHITECTURES}")
    # PT_INTERP: the program needs a loader, which the image does not have.
    if 3 in kinds:
        sys.exit(f"{path} is not static: tools/package/static.sh builds one that is")
    return ARCHITECTURES[machine]


def licences(action):
    command = [sys.executable, str(ROOT / "tools" / "package" / "licenses.py"), action, "--static"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout


def layer(program, epoch):
    """Files of the image as a tar archive."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:

        def add(name, data=None, mode=0o755):
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode = epoch, mode
            if data is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(data)
            tar.addfile(entry, None if data is None else io.BytesIO(data))

        for folder in ("usr", "usr/bin", "usr/share", "usr/share/doc", "usr/share/doc/millrace"):
            add(folder)
        for folder in ("tmp", "cache"):
            add(folder, mode=0o1777)
        add("usr/bin/millrace", program)
        doc = {
            "LICENSE-APACHE": (ROOT / "LICENSE-APACHE").read_bytes(),
            "LICENSE-MIT": (ROOT / "LICENSE-MIT").read_bytes(),
            "THIRD-PARTY.txt": licences("texts"),
            "millrace.cdx.json": licences("sbom"),
        }
        for name, data in doc.items():
            add(f"usr/share/doc/millrace/{name}", data, 0o644)
    return raw.getvalue()


def version():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    return next(package["version"] for package in packages if package["name"] == "millrace-cli")


def write(path, out):
    program = read_program(path)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs = {}

    def blob(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(value, media_type):
        return blob(json.dumps(value, sort_keys=True).encode(), media_type)

    platform = {"architecture": architecture(path, program), "os": "linux"}
    files = layer(program, epoch)
    labels = {
        "org.opencontainers.image.title": "millrace",
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/millrace/millrace",
    }
    config = {
        **platform,
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": ["PATH=/usr/bin", "HF_HOME=/cache/huggingface", "MILLRACE_NPU_CACHE=/cache/npu"],
            "Entrypoint": ["/usr/bin/millrace"],
            "Cmd": ["serve", "demo"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/package/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": document(config, CONFIG),
        "layers": [blob(gzip.compress(files, 9, mtime=0), LAYER)],
        "annotations": labels,
    }
    top = document(manifest, MANIFEST)
    names = {"io.containerd.image.name": f"millrace:{version()}", "org.opencontainers.image.ref.name": version()}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{**top, "platform": platform, "annotations": names}],
    }
    archive(out, epoch, index, blobs)


def archive(out, epoch, index, blobs):
    """Writes the image layout as one file, which appears only when it is complete."""
    parts = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index, sort_keys=True).encode()}
    parts |= {f"blobs/sha256/{digest}": data for digest, data in sorted(blobs.items())}
    temporary = Path(f"{out}.part")
    with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), epoch, 0o644
            tar.addfile(entry, io.BytesIO(data))
    temporary.rename(out)
    print(f"{Path(out).stat().st_size} {out}")


def test(image):
    """Reads the image only through its digests, unpacks its layers, and runs its program as its user."""
    if os.geteuid() != 0:
        sys.exit("image.py: --test needs root, for chroot")
    with tarfile.open(image) as tar:
        parts = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}

    def blob(descriptor):
        kind, digest = descriptor["digest"].split(":")
        data = parts[f"blobs/{kind}/{digest}"]
        assert hashlib.new(kind, data).hexdigest() == digest, f"{digest} holds something else"
        assert len(data) == descriptor["size"], f"{digest}: {len(data)} bytes of {descriptor['size']}"
        return data

    assert json.loads(parts["oci-layout"])["imageLayoutVersion"] == "1.0.0"
    (top,) = json.loads(parts["index.json"])["manifests"]
    manifest = json.loads(blob(top))
    config = json.loads(blob(manifest["config"]))
    assert config["architecture"] == top["platform"]["architecture"]
    with tempfile.TemporaryDirectory() as root:
        for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            files = gzip.decompress(blob(descriptor))
            assert f"sha256:{hashlib.sha256(files).hexdigest()}" == diff_id, "the layer is not what the configuration says"
            with tarfile.open(fileobj=io.BytesIO(files)) as tar:
                # Python before 3.11.4 has no filters, and trusts the archive.
                tar.extractall(root, **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))
        for name in ("THIRD-PARTY.txt", "millrace.cdx.json", "LICENSE-MIT"):
            assert (Path(root) / "usr/share/doc/millrace" / name).stat().st_size > 0, name
        user, group = map(int, config["config"]["User"].split(":"))
        os.chmod(root, 0o755)
        environment = dict(one.split("=", 1) for one in config["config"]["Env"])

        def run(*arguments):
            return subprocess.run(
                [*config["config"]["Entrypoint"], *arguments],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
                preexec_fn=lambda: (os.chroot(root), os.chdir("/"), os.setgroups([]), os.setgid(group), os.setuid(user)),
            ).stdout

        print(run("--version").strip())
        text = run("run", "demo", "Once upon a time", "--greedy", "-n", "12", "--quiet")
        assert any(letter.isalpha() for letter in text), f"the program writes {text!r}"
        print(text.strip())
    print(f"ok {image}: {len(manifest['layers'])} layer, {config['architecture']}, as user {user}")


def main():
    if sys.argv[1:2] == ["--test"] and len(sys.argv) == 3:
        test(sys.argv[2])
    elif len(sys.argv) == 3:
        write(sys.argv[1], sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
