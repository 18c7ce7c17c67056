import json
import os
import subprocess
from pathlib import Path

import pytest

from weft.testbed.machine import doctor, features
from weft.testbed.machine.features import Scratch, Try
from weft.testbed.runs import run

REFUSED = "Specified qdisc kind is unknown"


def present(scratch: Scratch) -> str:
    return "version 7"


def absent(scratch: Scratch) -> str:
    raise OSError(2, REFUSED)


HAVE = Try("have", "this", present, "modprobe have", root=False)
LACK = Try("lack", "that", absent, "modprobe lack", root=False)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A doctor who knows two features of the kernel and no programs, and has seen nothing yet."""
    file = tmp_path / "doctor.json"
    monkeypatch.setattr(doctor, "_file", lambda: file)
    monkeypatch.setattr(doctor, "TRIES", (HAVE, LACK))
    monkeypatch.setattr(doctor, "PROGRAMS", ())
    return file


def test_every_feature_has_a_name_of_its_own_and_says_what_it_is_for():
    tries = features.TRIES + features.PROGRAMS
    assert len({trial.name for trial in tries}) == len(tries)
    assert all(trial.needed_for and trial.get for trial in tries)


def test_what_was_found_is_remembered_until_the_next_boot(memory, monkeypatch, tmp_path):
    features = doctor.probe()
    assert [(feature.name, feature.present, feature.detail) for feature in features] == [
        ("have", True, "version 7"),
        ("lack", False, REFUSED),
    ]
    monkeypatch.setattr(doctor, "examine", lambda tries: [])
    assert doctor.probe() == features
    boot = tmp_path / "boot_id"
    boot.write_text("another")
    monkeypatch.setattr(doctor, "BOOT_ID", boot)
    assert doctor.probe() == []


def test_fresh_means_now(memory, monkeypatch):
    doctor.probe()
    monkeypatch.setattr(doctor, "examine", lambda tries: [])
    assert doctor.probe(fresh=True) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', '{"key": {}, "features": [{}]}'])
def test_a_memory_that_is_no_memory_is_not_believed(memory, text):
    memory.write_text(text)
    assert doctor._stored() == []
    assert len(doctor.probe()) == 2


def test_who_needs_what_is_missing_is_told_in_one_line(memory, monkeypatch):
    doctor.require("have", "a test")
    with pytest.raises(ValueError, match="a test needs lack, which is missing") as raised:
        doctor.require("lack", "a test")
    text = str(raised.value)
    assert "\n" not in text
    assert REFUSED in text
    assert "modprobe lack" in text
    assert "weft uml --" in text


def test_what_was_missing_is_tried_again_before_anybody_is_refused(memory, monkeypatch):
    doctor.probe()
    monkeypatch.setattr(
        doctor, "TRIES", (HAVE, Try("lack", "that", present, "modprobe lack", root=False))
    )
    doctor.require("lack", "a test")


def test_what_was_there_is_not_tried_again(memory, monkeypatch):
    doctor.probe()
    monkeypatch.setattr(doctor, "examine", absent)
    doctor.require("have", "a test")


def test_a_summary_comes_first_and_every_line_fits_a_terminal(memory, capsys, monkeypatch):
    for system, package in (("debian", False), ("ubuntu", True)):
        monkeypatch.setattr(
            doctor.platform, "freedesktop_os_release", lambda system=system: {"ID": system}
        )
        doctor.show(doctor.probe())
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(
            f"Linux {os.uname().release}: 1 of 2 features are there; missing: lack"
        )
        assert max(map(len, lines)) <= 80
        shown = " ".join(" ".join(lines).split())
        assert all(
            text in shown for text in ("have", "lack", "version 7", "modprobe lack", "weft uml")
        )
        assert ("linux-modules-extra" in shown) == package


def test_json_has_every_feature(memory):
    document = json.loads(json.dumps(doctor.as_json(doctor.probe())))
    assert document["kernel"] == os.uname().release
    assert [set(feature) for feature in document["features"]] == 2 * [
        {"name", "present", "detail", "needed_for", "get"}
    ]


@pytest.fixture
def features_without_root(public_copy: Path) -> dict[str, dict]:
    """Return what the doctor reports to a user without rights, by feature."""
    program = (
        "import json; from weft.testbed.machine import doctor; "
        "print(json.dumps(doctor.as_json(doctor.probe(fresh=True))))"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    command = ["/usr/bin/python3", "-c", program]
    done = subprocess.run(
        command, cwd=public_copy, env=environment, stdout=subprocess.PIPE, check=True, **nobody
    )
    report = json.loads(done.stdout)
    assert report["root"] is False
    return {feature["name"]: feature for feature in report["features"]}


def test_without_root_it_says_what_could_not_be_tried(features_without_root):
    for feature in features.TRIES:
        assert (features_without_root[feature.name]["present"] is None) == feature.root
    assert features_without_root["htb"]["detail"] == doctor.UNTRIED


@pytest.mark.kernel
def test_what_the_testbed_stands_on_is_found_and_nothing_is_left():
    def devices() -> set[str]:
        return {name.name for name in Path("/sys/class/net").iterdir()}

    before = devices()
    features = {feature.name: feature for feature in doctor.probe(fresh=True)}
    for name in (
        "netns names",
        "bridge",
        "htb",
        "pfifo",
        "clsact and cls_bpf",
        "schedstat",
        "real time",
    ):
        assert features[name].present, features[name]
    assert devices() == before
    assert doctor.probe() == list(features.values())
    assert (run.DIRECTORY / "doctor.json").exists()


@pytest.mark.kernel
def test_tc_agrees_about_delays(spare_netns):
    ip = ["ip", "netns", "exec", spare_netns.name]
    subprocess.run([*ip, "ip", "link", "add", "v0", "type", "veth", "peer", "v1"], check=True)
    netem = ["tc", "qdisc", "add", "dev", "v0", "root", "netem", "delay", "1ms"]
    result = subprocess.run([*ip, *netem], capture_output=True, check=False)
    (feature,) = doctor.examine([one for one in features.TRIES if one.name == "netem"])
    assert feature.present == (result.returncode == 0), (feature, result.stderr)


@pytest.mark.uml("sch_netem", "tcp_dctcp")
def test_a_kernel_with_everything_has_everything():
    features = {feature.name: feature for feature in doctor.probe(fresh=True)}
    for name in ("netem", "ifb", "dctcp"):
        assert features[name].present, features[name]
    doctor.require("netem", "a delay of 1000 us")
