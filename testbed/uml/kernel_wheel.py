"""The kernel for virtual time as a wheel, weft-uml-kernel, for machines that cannot build it.

    make kernel-wheel

The wheel has the kernel, its checksum, the patches and the configuration, and names its source.
virtual_kernel.find() finds it by its identity, as it does a built one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from weft.testbed.uml import virtual_kernel
from weft.testbed.uml.uml import PROJECT

DISTRIBUTION = virtual_kernel.PACKAGE.replace("_", "-")
SOURCE_VERSION = ("dpkg-query", "--show", "--showformat=${Version}", "linux-source-6.12")
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
SUMMARY = "Linux for weft's virtual clock: User-Mode Linux for x86-64"
SOURCE_NOTE = """This kernel is Linux, under the GNU General Public License, version 2.

Source: Debian's package linux-source-6.12, version {version}, of
  https://snapshot.debian.org/package/linux-6.12/{version}/
The patches, in the order of their numbers, and the configuration are in this folder.
It was built by `make uml-kernel` of weft, which runs
  make ARCH=um KCONFIG_ALLCONFIG=weft.config allnoconfig
  make ARCH=um {settings} linux
"""


def write(kernel: Path, folder: Path) -> Path:
    """Write the wheel of a kernel into `folder`; the same kernel gives the same bytes."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    data = kernel.read_bytes()
    minor = max(int(minor) for minor in GLIBC.findall(data))
    tag = f"py3-none-manylinux_2_{minor}_x86_64"
    name = f"{virtual_kernel.PACKAGE}-{project['version']}"
    described = f"Metadata-Version: 2.4\nName: {DISTRIBUTION}\nVersion: {project['version']}\n"
    described += f"Summary: {SUMMARY}\nLicense-Expression: GPL-2.0-only\n"
    described += f"License-File: GPL-2.0-only.txt\nRequires-Python: {project['requires-python']}\n"
    licence = (PROJECT / "LICENSES/GPL-2.0-only.txt").read_bytes()
    files = {f"{virtual_kernel.PACKAGE}/{path}": text for path, text in _contents(kernel).items()}
    files[f"{name}.dist-info/licenses/GPL-2.0-only.txt"] = licence
    files[f"{name}.dist-info/METADATA"] = described.encode()
    files[f"{name}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    files[f"{name}.dist-info/RECORD"] = _record(files, f"{name}.dist-info/RECORD")
    wheel = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980
            mode = 0o755 if path.endswith(kernel.name) else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def _contents(kernel: Path) -> dict[str, bytes]:
    """Return the files of the package by their paths."""
    version = subprocess.run(SOURCE_VERSION, stdout=subprocess.PIPE, text=True, check=True).stdout
    flags = [*virtual_kernel.BUILD_SETTINGS, f"KCFLAGS={virtual_kernel.COMPILER_FLAGS}"]
    note = SOURCE_NOTE.format(version=version, settings=shlex.join(flags))
    sources = [virtual_kernel.CONFIG, *virtual_kernel.series()]
    return {
        "__init__.py": f'"""{SUMMARY}."""\n'.encode(),
        kernel.name: kernel.read_bytes(),
        f"{kernel.name}.sha256": kernel.with_suffix(".sha256").read_bytes(),
        "source/README": note.encode(),
        **{f"source/{path.name}": path.read_bytes() for path in sources},
    }


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    """Return the list of files with their checksums, as PEP 376 has it."""
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own},,\n"]).encode()


def main() -> int:
    """Write the wheel of this checkout's kernel into the folder of the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    try:
        print(write(virtual_kernel.require(), folder))
    except OSError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
