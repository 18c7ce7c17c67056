"""The page of a simulation: weft's daemons under Pyodide, as files for any web server.

Pyodide comes from the npm registry once, and stays in the machine's cache (virtual_kernel.py).
A network's file has its drawing and its topology, because the page has no numpy to build them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import weft
from weft import topologies
from weft.daemons.core import registry
from weft.experiments.view import page_data
from weft.testbed.uml import virtual_kernel
from weft.topologies.core.grammar import parse
from weft.topologies.core.plain_topology import PlainTopology

PYODIDE = "pyodide-314.0.7.tgz"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
PYODIDE_FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
HERE = Path(__file__).parent
SHARED = (  # with the page of a run
    "d3.min.js",
    "d3.LICENSE.txt",
    "drawing.js",
    "film.js",
    "notice.js",
    "panel.js",
    "timeline.js",
    "view.css",
    "view.js",
    "words.js",
)
FOLDERS = ("daemons", "topologies")  # of weft, that the page needs
SPECS = (
    *(f"dcell:n={n},k=1" for n in (4, 3, 6, 8, 12, 16)),
    *(f"beta-dcell:n={n},k=1" for n in (4, 8, 16)),
    *(f"ficonn:n={n},k=1" for n in (4, 8, 16)),
    *(f"fattree:k={k}" for k in (4, 6, 8)),
    "dcell:n=3,k=2",
    "beta-dcell:n=3,k=2",
    "gamma-dcell:n=4,k=1",
    "delta-dcell:n=4,k=1",
    "ficonn:n=4,k=2",
    "clos:n=4,r=4,m=4",
    "clos:n=8,r=2,m=4",
    "clos:n=8,r=16,m=8",
    "star:n=8",
    "complete:n=5,p=4",
    "slimfly:q=5,p=2",
    "slimfly:q=5,p=4",
    "dragonfly:p=2,palm=0",
    "hyperx:l=2,s=4,p=3",
    "jellyfish:n=20,r=4,p=2,seed=1",
    "xpander:r=4,l=4,p=2,seed=1",
)
NPM_S = 300


def pyodide() -> Path:
    """Return Pyodide's archive, from the cache or the npm registry.

    Raises:
        OSError: it cannot be had; one line says why.
    """
    folders = virtual_kernel.folders()
    for folder in folders:
        if (folder / PYODIDE).is_file() and _digest(folder / PYODIDE) == SHA512:
            return folder / PYODIDE
    npm = shutil.which("npm")
    if not npm:
        raise OSError(f"{PYODIDE} is not in {folders[0]}, and there is no npm to fetch it")
    name, _, version = PYODIDE.removesuffix(".tgz").partition("-")
    with tempfile.TemporaryDirectory(prefix="weft-npm-") as scratch:
        command = [npm, "pack", "--silent", f"{name}@{version}"]
        try:
            fetched = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=NPM_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"npm pack {name}@{version}: no answer within {NPM_S} s") from None
        archive = Path(scratch) / PYODIDE
        if not archive.is_file():
            raise OSError(f"npm pack {name}@{version}: {' '.join(fetched.stderr.split())[:200]}")
        if _digest(archive) != SHA512:
            raise OSError(f"{PYODIDE} from the npm registry has another SHA-512 than expected")
        stored = virtual_kernel.writable_folder() / PYODIDE
        partial = stored.with_suffix(f".{os.getpid()}")
        shutil.copyfile(archive, partial)
        return partial.replace(stored)


def _digest(path: Path) -> str:
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def write(folder: Path) -> None:
    """Write the page and all that it loads to `folder`.

    Raises:
        OSError: Pyodide cannot be had; one line says why.
    """
    archive = pyodide()
    (folder / "pyodide").mkdir(parents=True, exist_ok=True)
    (folder / "networks").mkdir(exist_ok=True)
    with tarfile.open(archive) as packed:
        for name in PYODIDE_FILES:
            member = packed.extractfile(f"package/{name}")
            assert member
            (folder / "pyodide" / name).write_bytes(member.read())
    for source in (*(HERE / "static" / name for name in SHARED), *HERE.glob("simulation/*")):
        shutil.copyfile(source, folder / source.name)
    write_code(folder / "weft.zip")
    (folder / "networks.json").write_text(json.dumps(_families(folder)))


def write_absent(folder: Path, reason: str) -> None:
    """Write a page to `folder` that says why there is no simulation."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"<p>These pages were built without the simulation: {html.escape(reason)}.</p>"
    (folder / "index.html").write_text(f"<!doctype html><title>weft</title>{text}")


def write_code(path: Path) -> None:
    """Write the parts of weft that the page needs as a zip archive."""
    package = Path(weft.__file__).parent
    modules = [path for name in FOLDERS for path in sorted((package / name).rglob("*.py"))]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as code:
        for module in [package / "__init__.py", *modules]:
            code.write(module, Path("weft") / module.relative_to(package))


def _families(folder: Path) -> list[dict[str, Any]]:
    """Return the page's networks by family, after writing each one's file."""
    families: dict[str, list[dict[str, Any]]] = {}
    for spec in SPECS:
        topology = topologies.build(spec)
        plain = PlainTopology(topology)
        name = f"networks/{hashlib.sha256(spec.encode()).hexdigest()[:12]}.json"
        content = {
            "drawing": page_data.drawing(topology),
            "topology": base64.b64encode(pickle.dumps(plain)).decode(),
        }
        (folder / name).write_bytes(page_data.as_json(content))
        families.setdefault(parse(spec)[0], []).append(
            {
                "spec": spec,
                "file": name,
                "servers": topology.servers,
                "nodes": topology.nodes,
                "schemes": schemes(plain),
            }
        )
    return [{"name": name, "networks": networks} for name, networks in families.items()]


def schemes(topology: PlainTopology) -> list[str]:
    """Return the schemes whose daemons can run on `topology` without numpy, the usual one first."""
    names = []
    for name in registry.schemes():
        try:
            if registry.configure(topology, name):
                names.append(name)
        except (ValueError, AttributeError):  # another kind of network; its arrays are missing
            continue
    return sorted(names, key=lambda name: (name != registry.usual(topology), name))
