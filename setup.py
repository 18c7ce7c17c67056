"""Compile the C libraries and missing eBPF programs, and tag a wheel that contains them.

The eBPF programs are the same for every processor of eBPF's byte order, and libbpf finds the
kernel's structures when it loads them.  Those that are compiled already, as in an archive of the
sources, stay as they are.
"""

import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TESTBED = Path("weft/testbed")
LIBRARIES = {
    "traffic/libndp.so": ["-std=gnu11", "-O3", "-shared", "-fPIC"],
    "uml/uml_preload.so": ["-O2", "-shared", "-fPIC"],
}
SOURCES = {
    "traffic/libndp.so": ["traffic/*.c", "packets/*.c"],
    "uml/uml_preload.so": ["uml/*.c"],
}
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
OLDEST_GLIBC = 17  # of which there are tags


def compile_programs() -> None:
    """Compile the missing eBPF programs by the Makefile, without its environment of packages.

    SystemExit, in one line, if that fails.
    """
    objects = [source.with_suffix(".o") for source in TESTBED.glob("*/*.bpf.c")]
    missing = [str(path.relative_to("weft")) for path in objects if not path.exists()]
    if not missing:
        return
    how = ["--directory=weft", "--makefile=../Makefile", "--old-file=.venv/.ready"]
    try:
        subprocess.run(["make", "--no-print-directory", *how, *sorted(missing)], check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            f"{missing[0]} cannot be compiled: eBPF programs need make, clang and libbpf-dev"
        ) from None


def of_environment(name: str, default: str = "") -> list[str]:
    """Return the words of an environment variable of compilers."""
    return shlex.split(os.environ.get(name, default))


class BuildPy(build_py):
    """Compiles the libraries into what is built; in a work tree that is used where it lies, make
    does."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        compile_programs()
        super().run()
        built = Path(self.build_lib) / TESTBED
        for program in built.glob("*/*.bpf.o"):
            if not program.with_suffix(".c").exists():  # of a program that there was once
                program.unlink()
        compiler = of_environment("CC", "gcc")
        for name, options in LIBRARIES.items():
            sources = sorted(str(path) for glob in SOURCES[name] for path in TESTBED.glob(glob))
            how = [*options, *of_environment("CFLAGS"), "-o", str(built / name)]
            subprocess.run([*compiler, *how, *sources, *of_environment("LDFLAGS")], check=True)


class Sdist(sdist):
    """Has compiled programs in it."""

    def run(self) -> None:
        compile_programs()
        super().run()


class Wheel(bdist_wheel):
    """For any Python 3, and the processor and the C library of its libraries."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        libraries = [Path(self.bdist_dir or "") / TESTBED / name for name in LIBRARIES]
        needed = [
            int(minor)
            for path in libraries
            if path.exists()
            for minor in GLIBC.findall(path.read_bytes())
        ]
        return "py3", "none", f"manylinux_2_{max([OLDEST_GLIBC, *needed])}_{platform.machine()}"


class Binary(Distribution):
    """Goes where libraries go."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=Binary, cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel, "sdist": Sdist})
