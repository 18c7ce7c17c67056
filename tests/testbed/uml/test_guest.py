"""Whatever a command does inside User-Mode Linux, the host is as it was: see SECURITY.md."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.testbed.linux import clock
from weft.testbed.uml import uml
from weft.testbed.uml.confinement import QUESTION_BYTES, Channels
from weft.testbed.uml.host_questions import OutsideHost, parsed

ATTACKS = Path(__file__).with_name("attacks.py")
NOBODY = 65534
PROCESSES, FILE_BYTES = 60, 1 << 20
PYTHON = "/usr/bin/python3"  # of every machine, as nobody may read no environment
# run by root or by nobody in a copy of the project, with `lab`, the command's folder
HOST = f"""
import sys
from pathlib import Path
from weft.testbed.uml import confinement, uml
confinement.FILE_BYTES, uml.MOST_PROCESSES = {FILE_BYTES}, {PROCESSES}
inputs = {{name: Path(name).read_text() for name in ("attacks.py", "targets.json")}}
exchange = uml.Exchange(inputs)
with open("output", "wb") as output:
    status = uml.run(
        [sys.executable, "/run/uml/attacks.py", *sys.argv[1:]],
        virtual=uml.VirtualClock(),
        cwd=Path("lab"),
        exchange=exchange,
        stdout=output,
        writable="writable" in sys.argv,
    )
print(exchange.report)
sys.exit(status)
"""


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return type, mode, owner, size and time of everything in a folder."""
    stats = {str(place): place.lstat() for place in [folder, *folder.rglob("*")]}
    return {
        name: (each.st_mode, each.st_uid, each.st_gid, each.st_size, each.st_mtime_ns)
        for name, each in stats.items()
    }


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike those of tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.virtual
@pytest.mark.landlock
@pytest.mark.parametrize("options", [[], ["writable"]], ids=["read-only", "writable"])
@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "nobody"])
def test_no_attack_from_inside_reaches_the_host(user, options, public_copy, public_folder):
    if user != os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    victim, own = public_folder / "victim", public_copy / "lab"
    for folder in (victim, own):
        (folder / "empty").mkdir(parents=True)
        (folder / "secret").write_text(folder.name)
        (folder / "secret").chmod(0o600)
    with subprocess.Popen(["sleep", "1000"], user=user) as bystander:
        targets = {"victim": str(victim), "own": str(own), "pid": bystander.pid}
        targets["processes"] = 2 * PROCESSES
        (public_copy / "targets.json").write_text(json.dumps(targets))
        (public_copy / "attacks.py").write_text(ATTACKS.read_text())
        for place in [public_copy, victim, *victim.rglob("*"), own, *own.rglob("*")]:
            os.chown(place, user, user)
        before, own_ns = (state_of(victim), state_of(own)), own.stat().st_mtime_ns
        done = subprocess.run(
            [PYTHON, "-c", HOST, *options],
            cwd=public_copy,
            env={"PATH": "/usr/bin:/bin"},
            user=user,
            group=user,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        state = Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(") ")[2][0]
        bystander.kill()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"succeeded": [], "done": ["lab", "settings"]}
    (own / "suid").unlink(missing_ok=True)  # which had an ordinary mode
    os.utime(own, ns=(own_ns, own_ns))
    assert (state_of(victim), state_of(own)) == before
    assert (public_copy / "output").stat().st_size <= FILE_BYTES
    assert state == "S"


@pytest.mark.virtual
def test_a_question_that_is_none_ends_the_run_in_a_line(tmp_path):
    script = "echo nonsense >&8; while :; do :; done"
    with pytest.raises(
        ChildProcessError, match=r"asked the host b'nonsense', which is no question"
    ):
        uml.run(
            ["sh", "-c", script],
            virtual=uml.VirtualClock(),
            cwd=tmp_path,
            host=OutsideHost(io.StringIO()),
        )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[" * QUESTION_BYTES,
        b'{"name": "../../x", "wants": "line"}',
        b'{"name": "1.1", "wants": "time", "real_s": NaN}',
        b'{"name": "1.1", "wants": "time", "real_s": "1"}',
        b'{"name": "1.1", "wants": "all"}',
    ],
)
def test_what_is_no_question_is_refused(line):
    with pytest.raises(ChildProcessError, match="which is no question"):
        parsed(line)


def test_a_question_without_an_end_is_refused_and_half_a_one_is_waited_for(tmp_path):
    with Channels(tmp_path) as ends, open(tmp_path / "channels/questions", "ab", 0) as asking:
        asking.write(b"half")
        assert list(ends.questions()) == []
        asking.write(b" and half\n")
        assert list(ends.questions()) == [b"half and half"]
        asking.write(bytes(QUESTION_BYTES + 1))
        with pytest.raises(ChildProcessError, match=f"more than {QUESTION_BYTES} bytes"):
            list(ends.questions())


def test_a_kernel_goes_on_when_its_question_could_not_be_answered(tmp_path):
    """The signals go to the kernel alone, whatever a question says."""

    class Broken(io.StringIO):
        def readline(self, *_: int) -> str:
            raise OSError("the terminal is gone")

    def state(process: subprocess.Popen[bytes]) -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]

    with subprocess.Popen(["sleep", "1000"]) as kernel:
        descriptor = os.pidfd_open(kernel.pid)
        question = json.dumps({"name": "1.1", "wants": "line", "pid": -1}).encode()
        seen: list[str] = []
        with pytest.raises(OSError, match="is gone"):
            OutsideHost(Broken()).attend(
                [question], descriptor, tmp_path, lambda: seen.append("shown")
            )
        clock.wait_until("the kernel goes on", lambda: state(kernel) == "S")
        assert seen == ["shown"]
        os.close(descriptor)
        kernel.kill()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"", (False, None)),
        (b"booted\n", (True, None)),
        (b"booted\n3\n", (True, 3)),
        (b"booted\n-1\n", (True, None)),
        (b"booted\n" + b"9" * 1000, (True, None)),
        (b"\xff\n0\n", (False, 0)),
    ],
)
def test_a_status_is_a_number_or_none(tmp_path, words, status):
    with Channels(tmp_path) as ends:
        (tmp_path / "channels/status").write_bytes(words)
        assert ends.status() == status


def test_a_report_that_is_no_text_is_refused(tmp_path):
    with Channels(tmp_path) as ends:
        (tmp_path / "channels/report").write_bytes(b"\xff")
        with pytest.raises(ChildProcessError, match=re.escape("no text in UTF-8")):
            ends.report()
