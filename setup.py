"""Compile the C libraries and tag a wheel that contains them.

The eBPF programs are compiled before, by `make dist`: they are the same for every processor of
eBPF's byte order, and libbpf finds the kernel's structures when it loads them.
"""

import platform
import re
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TESTBED = Path("weft/testbed")
LIBRARIES = {
    "traffic/libndp.so": ["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC"],
    "uml/uml_preload.so": ["gcc", "-O2", "-shared", "-fPIC"],
}
SOURCES = {
    "traffic/libndp.so": ["traffic/*.c", "packets/*.c"],
    "uml/uml_preload.so": ["uml/*.c"],
}
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
OLDEST_GLIBC = 17  # of which there are tags


def check_programs() -> None:
    """SystemExit, in one line, if an eBPF program is not compiled."""
    for source in TESTBED.glob("*/*.bpf.c"):
        if not source.with_suffix(".o").exists():
            raise SystemExit(
                f"{source} is not compiled: `make dist` does that, and needs clang and libbpf-dev"
            )


class BuildPy(build_py):
    """Compiles the libraries into what is built; in a work tree that is used where it lies, make
    does."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        check_programs()
        built = Path(self.build_lib) / TESTBED
        for program in built.glob("*/*.bpf.o"):
            if not program.with_suffix(".c").exists():  # of a program that there was once
                program.unlink()
        for name, command in LIBRARIES.items():
            sources = sorted(str(path) for glob in SOURCES[name] for path in TESTBED.glob(glob))
            target = built / name
            subprocess.run([*command, "-o", str(target), *sources], check=True)


class Sdist(sdist):
    """Has compiled programs in it."""

    def run(self) -> None:
        check_programs()
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
