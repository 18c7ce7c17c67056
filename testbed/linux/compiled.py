"""Programs and libraries in C that `make bpf` compiles, compared with their sources."""

from __future__ import annotations

from pathlib import Path

TESTBED = Path(__file__).resolve().parents[1]
SOURCES = {
    ".bpf.o": ("data_plane/*.h",),
    "libndp.so": ("traffic/*.[ch]", "packets/*.[ch]", "data_plane/*.h"),
    "uml_preload.so": ("uml/*.c",),
}


class NotCompiledError(FileNotFoundError):
    """A program or library in C that is missing, or older than its sources."""


def require(path: Path) -> None:
    """Refuse a program or library in C that is not compiled from the sources beside it.

    Only a checkout is compared with its sources, by their times: installed files have the time
    of the installation.

    Raises:
        NotCompiledError: it is missing or out of date; the message says how to compile it.
    """
    if not path.exists():
        reason = "is missing"
    elif newer := [source for source in sources(path) if modified(source) > modified(path)]:
        reason = f"is older than {newer[0].name}"
    else:
        return
    raise NotCompiledError(f"{path} {reason}: `make bpf` compiles it (needs clang, libbpf-dev)")


def sources(path: Path) -> list[Path]:
    """Return the files of a checkout from which make compiles `path`; none elsewhere."""
    folder = path.resolve().parent
    if folder.parent != TESTBED or not TESTBED.with_name("Makefile").exists():
        return []
    files = [file for pattern in SOURCES[suffix(path)] for file in TESTBED.glob(pattern)]
    if suffix(path) == ".bpf.o":
        name = path.name.removesuffix(".bpf.o")
        own = [folder / f"{name}.bpf.c", folder / f"{name.partition('_')[0]}.bpf.c"]
        files += [file for file in set(own) if file.exists()]  # variants include select.bpf.c
    return sorted(files)


def suffix(path: Path) -> str:
    """Return the key of SOURCES for `path`."""
    return next(end for end in SOURCES if path.name.endswith(end))


def modified(path: Path) -> int:
    """Return the time at which `path` was written, in ns."""
    return path.stat().st_mtime_ns
