"""The tests come from Debian's source package of Mininet, which is fetched once and known by its
checksum."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import urllib.request
from pathlib import Path

NAME = "mininet_2.3.0.orig.tar.gz"
# as in Debian's mininet_2.3.0-1.dsc
SHA256 = "1b16ee53ddb9a34a3751a77517643bda2286fc31be123209e84884d0697107b0"
PLACES = (
    f"http://deb.debian.org/debian/pool/main/m/mininet/{NAME}",
    f"http://archive.ubuntu.com/ubuntu/pool/universe/m/mininet/{NAME}",
)
TESTS = ("test_nets.py", "test_hifi.py", "test_walkthrough.py")


def fetch() -> Path:
    """The folder of Mininet's source, which is fetched unless it is there.

    OSError where it cannot be fetched; ValueError for a file that is not the one.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / NAME
    if not file.exists():
        file.write_bytes(_download())
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{file} is not Debian's {NAME}; remove it")
    folder = cache / "mininet-2.3.0"
    if not folder.exists():
        subprocess.run(
            ["tar", "--extract", "--file", str(file), "--directory", str(cache)], check=True
        )
    return folder


def _download() -> bytes:
    errors = []
    for place in PLACES:
        try:
            with urllib.request.urlopen(place, timeout=60) as answer:
                data: bytes = answer.read()
        except OSError as error:
            errors.append(f"{place}: {error}")
            continue
        if hashlib.sha256(data).hexdigest() == SHA256:
            return data
        errors.append(f"{place}: another file")
    raise OSError("Mininet's source cannot be fetched: " + "; ".join(errors))


def names(file: Path) -> list[str]:
    """CLASS.METHOD of every test in a file, without running it: classes that derive from TestCase,
    in order."""
    classes = {
        node.name: node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    }

    def bases(name: str) -> list[str]:
        names = [name]
        for base in classes[name].bases if name in classes else []:
            names += bases(
                base.id
                if isinstance(base, ast.Name)
                else base.attr
                if isinstance(base, ast.Attribute)
                else ""
            )
        return names

    listed = []
    for name in classes:
        if "TestCase" not in bases(name):
            continue
        for base in bases(name):
            methods = classes[base].body if base in classes else []
            listed += [
                f"{name}.{method.name}"
                for method in methods
                if isinstance(method, ast.FunctionDef) and method.name[:4] == "test"
            ]
    return listed
