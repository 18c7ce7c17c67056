"""Values of parameters: of every kind, and of every experiment."""

import time
from pathlib import Path

import pytest

from tests.optional_parts import with_and_without
from weft.experiments.cli.cli import main
from weft.experiments.runner import definition
from weft.experiments.runner.parameters import Integer, Number, Spec, Word, swept
from weft.testbed.runs import private_files

EXPERIMENTS = definition.discover()
CASES = [(name, key) for name, experiment in EXPERIMENTS.items() for key in experiment.axes]


def wrong(parameter):
    """Five texts that are no value of `parameter`."""
    match parameter:
        case Integer(least=least, most=most):
            return [str(least - 1), str(most + 1), "1.5", "many", f"{least}x"]
        case Number(least=least, most=most):
            return [repr(least - 0.001), repr(most + 0.001), "nan", "inf", "many"]
        case Word(words=words):
            return [words[0] + "x", words[0].upper(), "0", "-1", f"{words[0]}:k=1"]
        case Spec():
            return ["nonsense", "nonsense:k=1", "-1", "Dr:", "x:y"]


@pytest.mark.parametrize(("name", "key"), CASES, ids=["-".join(case) for case in CASES])
@pytest.mark.parametrize("command", ["run", "plot"])
@with_and_without("virtual")
@pytest.mark.slow
def test_a_wrong_value_is_one_line_at_once_and_nothing_is_made(
    part, command, name, key, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)  # whether the user may measure is asked later
    monkeypatch.setattr(private_files, "trusted_file", Path)  # the stand-in is this user's
    for text in wrong(EXPERIMENTS[name].axes[key].parameter):
        begin = time.process_time()  # of this process alone, however busy the machine is
        status = main(
            [command, name, "--results", str(tmp_path / "results"), "--set", f"{key}={text}"]
        )
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1), (text, err)
        assert err.startswith("weft: ")
        # nothing is routed or measured, which takes minutes
        assert time.process_time() - begin < 10, text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.slow
def test_the_sweep_is_within_what_is_declared(name):
    experiment = EXPERIMENTS[name]
    for key, (parameter, values) in experiment.axes.items():
        for value in values:
            read = parameter.read(name, key, str(value))
            assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_parameter_says_what_it_means(name):
    for key, (parameter, _) in EXPERIMENTS[name].axes.items():
        assert parameter.meaning
        assert parameter.range
        unit = key.rpartition("_")[2]
        units = {
            "s": "s",
            "mbps": "Mbit/s",
            "bps": "bit/s",
            "packets": "packets",
            "bytes": "bytes",
            "percent": "%",
        }
        assert parameter.unit == units.get(unit, parameter.unit) or key.endswith("_per_s")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("lbsp_queues patterns=-1", "lbsp_queues: patterns must be at least 1, got -1"),
        ("lbsp_queues edge_percent=-3", "lbsp_queues: edge_percent must be at least 100, got -3"),
        ("lbsp_queues slots=0", "lbsp_queues: slots must be at least 1, got 0"),
        (
            "lbsp_queues slots=1000000",
            "lbsp_queues: slots must be at most 65536 in fattree:k=8, got 1000000",
        ),
        (
            "ttc_theory load_fraction=0",
            "ttc_theory: load_fraction must lie in 1e-09 .. 0.9999, got '0'",
        ),
        (
            "ttc_theory load_fraction=1",
            "ttc_theory: load_fraction must lie in 1e-09 .. 0.9999, got '1'",
        ),
        (
            "ttc_packet scheme=ttc:ecn=3",
            "the models of TTC have no ecn=3: of ttc they know delta and tie",
        ),
        ("ttc_packet slots=10", "ttc_packet: watched_slots must be at most slots, 10, got 500"),
        (
            "ttc_packet topology=fattree:n=8,d=64",
            "ttc_packet: at most 65536 hosts, fattree:n=8,d=64 has 5",
        ),
        (
            "ttc_flow topology=fattree:n=8,d=64",
            "ttc_flow: at most 10000000 flows, k=1 in fattree:n=8,d=64: 5",
        ),
        ("lbsp_tcp rounds=0", "lbsp_tcp: rounds must be at least 1, got 0"),
        ("fabric_gain seconds=0", "fabric_gain: seconds must lie in 0.001 .. 3600, got '0'"),
        ("lbsp_tcp flow_bytes=0", "lbsp_tcp: flow_bytes must be at least 1, got 0"),
        (
            "lbsp_tcp oversubscription=-4",
            "lbsp_tcp: oversubscription must be at least 1, got -4",
        ),
        (
            "fabric_gain congestion_control=foo",
            "fabric_gain: no congestion_control 'foo' (there are: bbr, ",
        ),
        (
            "lbsp_tcp load_fraction=5",
            "lbsp_tcp: load_fraction must lie in 0.01 .. 0.99, got '5'",
        ),
        ("ttc_kernel rate_mbps=0", "ttc_kernel: rate_mbps must be at least 1, got 0"),
        ("hop_length topology=dcell:n=100000,k=1", "dcell: the graph engine takes n up to "),
        (
            "proxy_throughput topology=dcell:n=60,k=1",
            "proxy_throughput: at most 2000 nodes, dcell: 3,660 servers",
        ),
        (
            "fabric_gain topology=fattree:k=24",
            "fabric_gain: at most 2000 nodes, fattree: 3,456 servers",
        ),
        (
            "link_loss topology=dcell:n=60,k=1",
            "link_loss: at most 2000 nodes, dcell: 3,660 servers",
        ),
        (
            "lbsp_tcp topology=fattree:k=32",
            "fattree: 8,192 servers, 1,280 switches, 24,576 links; a run on the kernel has ",
        ),
    ],
)
@with_and_without("virtual")
def test_what_got_through_once_does_not(part, command, says, capsys, tmp_path):
    name, value = command.split()
    assert main(["run", name, "--results", str(tmp_path / "results"), "--set", value]) == 2
    assert capsys.readouterr().err.startswith(f"weft: {says}")
    assert not list(tmp_path.iterdir())


def test_a_control_that_this_kernel_lacks_is_refused_before_a_network_comes_up(
    tmp_path, monkeypatch, capsys
):
    available = tmp_path / "available"
    available.write_text("reno cubic\n")
    monkeypatch.setattr("weft.experiments.engines.common_parameters.AVAILABLE", available)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    argv = [
        "run",
        "fabric_gain",
        "--clock",
        "real",
        "--results",
        str(tmp_path / "results"),
        "--set",
        "congestion_control=bbr",
    ]
    assert main(argv) == 2
    says = "weft: fabric_gain: this kernel has no congestion control bbr (it has reno, cubic)\n"
    assert capsys.readouterr().err == says
    assert not (tmp_path / "results").exists()


def test_what_another_kernel_measures_is_not_refused_for_what_this_one_lacks(
    tmp_path, monkeypatch, capsys
):
    available = tmp_path / "available"
    available.write_text("reno cubic\n")
    monkeypatch.setattr("weft.experiments.engines.common_parameters.AVAILABLE", available)
    argv = [
        "run",
        "ndp_incast",
        "--results",
        str(tmp_path / "results"),
        "--dry-run",
        "--engine",
        "kernel",
    ]
    argv += ["--set", "transport=tcp:control=dctcp", "traffic=permutation"]
    assert main([*argv, "--clock", "virtual"]) == 0
    assert main([*argv, "--clock", "real"]) == 2
    assert "no congestion control dctcp (it has reno, cubic)" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0x10", "1_000", "1e", "", "٣", "--1", "1e999", "0.5.5"])
def test_a_number_is_plain(text):
    with pytest.raises(ValueError, match="must be a number"):
        Number(meaning="", least=-10, most=1e9).read("e", "x", text)


def test_a_number_may_be_written_in_several_ways():
    number = Number(meaning="", least=-10, most=1e9)
    assert [number.read("e", "x", text) for text in ("1", "1.", ".5", "1e3", "-2.5E-1")] == [
        1,
        1,
        0.5,
        1000,
        -0.25,
    ]


def test_an_axis_takes_other_values_of_the_same_parameter():
    axis = Integer(meaning="hosts", least=1, most=9).over(1, 2)
    assert axis.values == (1, 2)
    assert axis.over(3) == (axis.parameter, (3,))


def test_a_sweep_takes_other_values_for_some_parameters_and_refuses_unknown_ones():
    axes = {
        "hosts": Integer("hosts", least=1, most=9).over(1, 2),
        "name": Word("", words="ab").over("a"),
    }
    other = swept(axes, hosts=[3])
    assert [axis.values for axis in other.values()] == [(3,), ("a",)]
    with pytest.raises(KeyError, match="host"):
        swept(axes, host=[3])
