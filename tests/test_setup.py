"""The files around the code: Makefile, pins, packages, Vagrantfile."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from weft.experiments.cli import cli
from weft.testbed.uml import virtual_kernel

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"([A-Za-z0-9_.-]+)==([0-9][0-9a-z.]*)")


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """Version by name, from constraints.txt."""
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    matches = [PIN.fullmatch(line) for line in lines]
    assert all(matches), "a line of constraints.txt is not NAME==VERSION"
    return {canonicalize_name(match[1]): match[2] for match in matches}


def requirement_names(requirements: Iterable[str]) -> set[str]:
    """Names of those requirements that apply to this Python."""
    parsed = map(Requirement, requirements)
    return {
        canonicalize_name(requirement.name)
        for requirement in parsed
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


def test_everything_that_is_installed_is_pinned(pins):
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = about["project"]
    extras = project["optional-dependencies"]
    of_extras = requirement_names(requirement for extra in extras.values() for requirement in extra)
    assert of_extras - {"weft-uml-kernel"} <= set(pins)  # built by `make kernel-wheel`
    waiting = requirement_names(
        [*project["dependencies"], *extras["dev"], *about["build-system"]["requires"]]
    )
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= requirement_names(importlib.metadata.requires(name) or []) - reached
    assert reached <= set(pins)


def test_every_pin_takes_the_oldest_python(pins):
    """Debian 12 has Python 3.11.2.  `make docs` installs the rest, before the tests of
    `.ci/run`."""
    refused = {
        distribution.name: distribution.metadata.get("Requires-Python")
        for distribution in importlib.metadata.distributions()
        if pins.get(canonicalize_name(distribution.name)) == distribution.version
        and "3.11.2" not in SpecifierSet(distribution.metadata.get("Requires-Python") or "")
    }
    assert not refused


def test_make_alone_prints_its_targets():
    printed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [re.fullmatch(r"make ([a-z-]+) +\S.*", line) for line in printed.splitlines()]
    assert all(lines)
    assert {"setup", "demo", "check", "test", "test-all", "bench", "figures", "clean"} <= {
        line[1] for line in lines
    }


@pytest.mark.parametrize(
    "target", ["setup", "demo", "check", "test", "test-all", "bench", "figures", "clean"]
)
def test_every_target_can_be_made(target):
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.parametrize(
    "script",
    [
        "tools/setup.sh",
        "tools/clean_root.sh",
        "tools/try_wheels.sh",
        "tools/vm_test.sh",
        "testbed/uml/uml-init.sh",
        ".ci/run",
    ],
)
def test_a_script_is_executable_and_parses(script):
    path = ROOT / script
    assert path.stat().st_mode & 0o111 == 0o111
    shell = path.read_text().splitlines()[0].removeprefix("#!").split()[-1].rpartition("/")[2]
    subprocess.run([shell, "-n", path], check=True)


def test_setup_refuses_what_it_does_not_know():
    done = subprocess.run(
        [ROOT / "tools/setup.sh", "--everything"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "setup: no option --everything; there are --modules and --uml-kernel\n",
    )


def test_a_clean_root_needs_targets():
    done = subprocess.run(
        [ROOT / "tools/clean_root.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "clean root: name targets of make, such as: tools/clean_root.sh demo test\n",
    )


def test_without_root_make_runs_on_the_machine_as_it_is(tmp_path):
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)  # make, when it runs the tests, sets it for makes of its own
    script = [ROOT / "tools/clean_root.sh", "help"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "clean root: this needs root; make runs on this machine as it is\n"
    assert "make demo" in done.stdout


def test_modules_are_named_once_each():
    lines = (ROOT / "testbed/uml/modules.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names), names
    assert len(names) == len(set(names))


def makes(command: str) -> list[str]:
    """Return the targets of make in a command of the shell."""
    return [
        target
        for words in re.findall(r"(?:^|&& )make ([a-z -]+)", command, re.MULTILINE)
        for target in words.split()
    ]


def test_the_container_runs_what_there_is():
    """Without building it: its shells parse, its targets and its command are there."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").replace("\t", "")
    runs = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    for run in runs:
        subprocess.run(["sh", "-n", "-c", run], check=True)
    targets = [target for run in runs for target in makes(run)]
    assert targets == ["setup", "uml-kernel"]
    for target in targets:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)
    assert f"COPY --from=kernel {virtual_kernel.SYSTEM_CACHE} " in text
    last = text[text.rindex("\nFROM") :]
    assert "\nUSER weft\n" in last
    (words,) = re.findall(r"^CMD (\[.*\])$", last, re.MULTILINE)
    program, *argv = json.loads(words)
    assert program == "weft"
    options = cli.parser().parse_args(argv)
    assert (options.experiment, options.clock) == ("first_light", "virtual")


def test_the_container_for_editors_is_the_same():
    file = ROOT / ".devcontainer/devcontainer.json"
    settings = json.loads(file.read_text())
    assert (file.parent / settings["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (file.parent / settings["build"]["context"]).resolve() == ROOT
    assert makes(settings["postCreateCommand"]) == ["setup"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=str)
def test_a_workflow_runs_what_there_is(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(need in jobs for job in jobs.values() for need in [job.get("needs")] if need)
    assert all("@" in step["uses"] for step in steps if "uses" in step)
    for command in [step["run"] for step in steps if "run" in step]:
        subprocess.run(["sh", "-n", "-c", command], check=True)
        for target in makes(command):
            subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)
        for script in re.findall(r"\btools/\w+\.\w+", command):
            assert (ROOT / script).exists()


def test_a_tag_waits_for_what_is_missing(tmp_path):
    script = [sys.executable, ROOT / "tools/release_check.py"]

    def lines(tag):
        done = subprocess.run([*script, tag], capture_output=True, text=True, check=False)
        assert done.returncode == bool(done.stderr)
        return done.stderr.splitlines()

    assert lines("v9")[0].startswith("pyproject.toml has version")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert not [line for line in lines(f"v{version}") if "pyproject" in line]
    (tmp_path / "tools").mkdir()
    shutil.copy(script[1], tmp_path / "tools")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "CHANGES.md").write_text(f"# Changes\n\n## {version}, 2027-01-02\n")
    citation = f"a: b\nversion: {version}\ncontact:\nrepository-code: https://example.org\n"
    (tmp_path / "CITATION.cff").write_text(citation)
    script[1] = tmp_path / "tools/release_check.py"
    assert lines(f"v{version}") == []


@pytest.mark.skipif(not shutil.which("vagrant"), reason="needs vagrant")
def test_vagrant_accepts_its_file(tmp_path):
    shutil.copy(ROOT / "Vagrantfile", tmp_path)
    subprocess.run(
        ["vagrant", "validate", "--ignore-provider"], cwd=tmp_path, capture_output=True, check=True
    )


@pytest.mark.parametrize(("says", "there"), [("Package: user-mode-linux", True), ("", False)])
def test_a_package_is_there_only_if_something_is_said_of_it(tmp_path, says, there):
    """Ubuntu's apt-cache succeeds, and says nothing, for a package that is only named by
    another."""
    text = (ROOT / "tools/setup.sh").read_text()
    function = text[text.index("available() {") :].partition("\n}\n")[0] + "\n}\n"
    (tmp_path / "apt-cache").write_text(f"#!/bin/sh\necho '{says}'" if says else "#!/bin/sh\n")
    (tmp_path / "apt-cache").chmod(0o755)
    script = f"PATH={tmp_path}:$PATH; {function} available user-mode-linux"
    assert (subprocess.run(["sh", "-c", script], check=False).returncode == 0) == there


@pytest.mark.kernel
def test_setup_makes_weft_known_to_sudo_and_replaces_no_other(tmp_path):
    """In a mount namespace with an empty /usr/local/bin."""
    program = tmp_path / ".venv/bin/weft"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho ours\n")
    program.chmod(0o755)
    text = (ROOT / "tools/setup.sh").read_text()
    functions = [
        re.search(rf"^{name}\(\) {{.*?^}}$", text, re.M | re.S)[0]
        for name in ("fail", "as_root", "make_launcher")
    ]
    sudo = "sudo weft" if shutil.which("sudo") else "weft"
    lines = [
        *("set -eu", "mount -t tmpfs none /usr/local/bin", *functions),
        *("make_launcher", sudo, "make_launcher"),  # the second time it is there
        *("ln -sf /gone /usr/local/bin/weft", "make_launcher", "weft"),
        *("ln -sf /bin/true /usr/local/bin/weft", "make_launcher", "readlink /usr/local/bin/weft"),
    ]
    argv = ["unshare", "--mount", "sh", "-c", "\n".join(lines)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ours", "ours", "/bin/true"]
    assert (
        done.stderr
        == f"setup: /usr/local/bin/weft is another weft, and stays; this one is {program}\n"
    )
