"""The kernel for virtual time: Debian's linux-source-6.12 with the patches in kernel/, built once.

    make uml-kernel

Its name has a hash of patches, configuration and build settings.  The same tools build the same
bytes in any folder.  The kernel is stored with a checksum in $WEFT_CACHE, if that is set; else in
the first of these folders that may be written: /var/cache/weft (root), ~/.cache/weft (other users).
A kernel in an installed wheel goes before.  A kernel that users other than root and this one can
change is not run (private_files.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from weft.testbed.runs import private_files

FOLDER = Path(__file__).resolve().parent / "kernel"
CONFIG = FOLDER / "weft.config"
SOURCE = Path("/usr/src/linux-source-6.12.tar.xz")
TOOLS = ("bc", "bison", "flex", "gcc", "make", "pahole", "patch", "tar", "xz")
APPLY = ("patch", "--strip=1", "--silent", "--no-backup-if-mismatch")
# Part of the kernel's version, which seeds its random numbers: another time is another run.
BUILD_SETTINGS = (
    "KBUILD_BUILD_TIMESTAMP=Mon Nov 23 02:30:48 UTC 2026",
    "KBUILD_BUILD_VERSION=1",
    "KBUILD_BUILD_USER=weft",
    "KBUILD_BUILD_HOST=weft",
)
# BTF needs types, not places of variables and statements; warnings take a tenth of the build.
COMPILER_FLAGS = (
    "-w -fno-var-tracking -fno-var-tracking-assignments -gno-statement-frontiers"
    " -gno-variable-location-views -gno-inline-points -gno-column-info"
)
STEPS = 1500  # lines that the build of 6.12.117 prints
ROOM_BYTES = 4 << 30
SYSTEM_CACHE = Path("/var/cache/weft")
PACKAGE = "weft_uml_kernel"  # of a wheel that has the kernel (kernel_wheel.py)
FOLDER_MODE, KERNEL_MODE, CHECKSUM_MODE = 0o755, 0o755, 0o644  # whatever the umask


def series() -> list[Path]:
    """Return the patches in the order in which they apply."""
    return sorted(FOLDER.glob("*.patch"))


def merged(patches: Iterable[bytes]) -> bytes:
    """Return a series of patches as one, by file and line, without their descriptions.

    Every hunk has the line numbers of the original source.
    """
    hunks: dict[bytes, list[bytes]] = {}
    for patch in patches:
        for part in re.split(rb"^(?=--- )", patch, flags=re.MULTILINE)[1:]:
            header, *changes = re.split(rb"^(?=@@ )", part, flags=re.MULTILINE)
            hunks.setdefault(header, []).extend(changes)
    whole = b""
    # new files last
    for header in sorted(hunks, key=lambda text: (text.startswith(b"--- /dev/null"), text)):
        changes = sorted(hunks[header], key=_first_line)
        whole += header + b"".join(changes)
    return whole


def _first_line(hunk: bytes) -> int:
    return int(hunk.removeprefix(b"@@ -").partition(b",")[0])


def identity() -> str:
    """Return 16 hexadecimal digits for what the kernel is built from."""
    patch = merged(path.read_bytes() for path in series())
    settings = "\n".join([*BUILD_SETTINGS, COMPILER_FLAGS]).encode()
    return hashlib.sha256(patch + CONFIG.read_bytes() + settings).hexdigest()[:16]


def folders() -> list[Path]:
    """Return the folders in which this user may have a kernel, best first."""
    if configured := os.environ.get("WEFT_CACHE"):
        return [Path(configured)]
    own = [] if os.geteuid() == 0 else [Path.home() / ".cache/weft"]
    return [SYSTEM_CACHE, *own]


def find() -> Path | None:
    """Return the kernel, without links, if it has been built and is what was built.

    Raises:
        OSError: another user can change it, or its checksum.
    """
    for folder in [*_installed(), *folders()]:
        kernel = folder / f"linux-{identity()}"
        checksum = kernel.with_suffix(".sha256")
        if not kernel.exists() or not checksum.exists():
            continue
        kernel, checksum = private_files.trusted_file(kernel), private_files.trusted_file(checksum)
        if hashlib.sha256(kernel.read_bytes()).hexdigest() == checksum.read_text().strip():
            return kernel
    return None


def _installed() -> list[Path]:
    """Return the folder of the installed wheel, if there is one."""
    package = importlib.util.find_spec(PACKAGE)
    return [Path(package.origin).parent] if package and package.origin else []


def require() -> Path:
    """Return the kernel, which is built now if it is missing; see build()."""
    return find() or build(shown(sys.stderr.write, sys.stderr.isatty()))


def build(progress: Callable[[float], None]) -> Path:
    """Build the kernel and store it, which takes minutes.

    Args:
        progress: called with the finished fraction.

    Raises:
        FileNotFoundError: a tool or the source is missing.
        OSError: a step failed; the message has its last lines.
    """
    _require_tools()
    folder = _writable()
    kernel = folder / f"linux-{identity()}"
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as name:
        tree = Path(name)
        _compile(tree, progress)
        digest = hashlib.sha256((tree / "linux").read_bytes()).hexdigest()
        (tree / "linux.sha256").write_text(digest + "\n")
        (tree / "linux.sha256").chmod(CHECKSUM_MODE)
        (tree / "linux").chmod(KERNEL_MODE)
        (tree / "linux.sha256").replace(kernel.with_suffix(".sha256"))
        (tree / "linux").replace(kernel)
    progress(1.0)
    return kernel


def _require_tools() -> None:
    """Raise FileNotFoundError if the kernel cannot be built on this machine."""
    if platform.machine() != "x86_64":
        raise FileNotFoundError(
            f"virtual time needs an x86_64 machine, and this one is {platform.machine()}"
        )
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not SOURCE.exists():
        missing.append(SOURCE.name)
    if missing:
        raise FileNotFoundError(
            f"no kernel for virtual time, and nothing to build it from ({', '.join(missing)}): "
            f"make uml-kernel"
        )


def _compile(tree: Path, progress: Callable[[float], None]) -> None:
    """Compile the patched source into `tree`/linux."""
    unpack(tree)
    for count, _ in enumerate(make(tree, "linux"), start=1):
        progress(min(count / STEPS, 0.99))
    _step(["strip", "linux"], tree)


def unpack(tree: Path) -> None:
    """Put the patched and configured source into the folder `tree`."""
    _step(["tar", "--extract", "--strip-components=1", f"--file={SOURCE}"], tree)
    for patch in series():
        _step([*APPLY, f"--input={patch}"], tree)
    _step(["make", "ARCH=um", f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig"], tree)


def make(tree: Path, goal: str) -> Iterator[str]:
    """Make `goal` from the source in `tree`; yield the lines that the compiler prints."""
    paths = f"-ffile-prefix-map={tree}=."
    flags = [f"KCFLAGS={COMPILER_FLAGS} {paths}", f"KAFLAGS={paths}"]
    return _lines(["make", "ARCH=um", f"-j{os.cpu_count()}", *BUILD_SETTINGS, *flags, goal], tree)


def shown(write: Callable[[str], object], terminal: bool) -> Callable[[float], None]:
    """Return a function that shows progress: a bar on a terminal, a line every tenth elsewhere."""
    tenths = -1

    def show(fraction: float) -> None:
        nonlocal tenths
        if terminal:
            write(f"\rkernel for virtual time [{'#' * int(40 * fraction):40}] {fraction:4.0%}")
            if fraction >= 1:
                write("\n")
        elif int(10 * fraction) > tenths:
            tenths = int(10 * fraction)
            write(f"kernel for virtual time: {tenths * 10} % built\n")

    return show


def writable_folder() -> Path:
    """Return the best of folders() that may be written, created if it is missing.

    Raises:
        OSError: none may be written, or another user can change it.
    """
    for folder in folders():
        with suppress(OSError):
            _make_folder(folder)
            if os.access(folder, os.W_OK):
                break
    else:
        raise FileNotFoundError(
            f"cannot write to {' or '.join(map(str, folders()))}: set WEFT_CACHE"
        )
    return private_files.trusted_folder(folder)


def _writable() -> Path:
    folder = writable_folder()
    if (free := shutil.disk_usage(folder).free) < ROOM_BYTES:
        raise OSError(
            f"{folder}: {free >> 20} MB are free, and building the kernel takes {ROOM_BYTES >> 20}"
        )
    return folder


def _make_folder(folder: Path) -> None:
    """Create `folder` and missing ones above it, with FOLDER_MODE whatever the umask."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(FOLDER_MODE)
    folder.chmod(FOLDER_MODE)


def _step(argv: list[str], tree: Path) -> None:
    for _ in _lines(argv, tree):
        pass


def _lines(argv: list[str], tree: Path) -> Iterator[str]:
    """Yield the lines that a command prints; raise OSError with the last ones if it fails."""
    last: list[str] = []
    with subprocess.Popen(
        argv,
        cwd=tree,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            last = [*last[-4:], line.strip()]
            yield line
    if process.returncode:
        raise OSError(f"{' '.join(argv)}: exit {process.returncode}: {' / '.join(last)}")


def main() -> int:
    """Build the kernel if it is missing, and print its path."""
    try:
        print(require())
    except OSError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
