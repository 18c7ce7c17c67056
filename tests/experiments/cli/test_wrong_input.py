"""A hundred wrong command lines: each gets one line and status 2, and leaves nothing behind."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.experiments.cli import cli
from weft.testbed.packets import parts

FILES = {
    "late.csv": "start_s,src,dst,bytes\n60,h0,h1,1\n",
    "deep.yaml": "[" * 100_000,
    "deep_mapping.yaml": "topology: " + "{a: " * 20_000,
    "indented.yaml": "\n".join(" " * depth + "a:" for depth in range(400)),
    "long.yaml": "# " + "x" * (1 << 20),
    "alias.yaml": "topology: &a star:n=2\nlink: *a\n",
    "twice.yaml": "topology: star:n=2\ntopology: star:n=3\n",
    "unknown.yaml": "topology: star:n=2\nspeed: 3\n",
    "list.yaml": "- a\n",
    "tab.yaml": "topology:\n\t- a\n",
    "play.yaml": "topology: star:n=2\nevents:\n  - {at: 0s, fail: h0-r0}\n",
    "binary.yaml": "a\0b",
    "nul.edges": "a b\0c\n",
    "escape.edges": "a b\x1b[31mc\n",
    "loop.edges": "a a\n",
    "one.edges": "a\n",
    "apart.edges": "a b\nc d\n",
    "rate.edges": "a b rate=fast\n",
    "delay.edges": "a b delay=1ms\n",
    "empty.edges": "",
    "nan.json": '{"nodes": [{"id": NaN}, {"id": 1}], "links": [{"source": NaN, "target": 1}]}',
    "hosts.json": '{"nodes": [{"id": "a", "hosts": -1}], "links": []}',
    "kind.json": '{"nodes": [{"id": "a", "kind": "router"}], "links": []}',
    "ends.json": '{"nodes": [{"id": "a"}], "links": [{"source": "a"}]}',
    "broken.json": "{",
    "broken.graphml": "<graphml>",
}
BINARY = {
    "four.pcapng": b"\x0a\x0d\x0d\x0a",
    "empty.pcapng": b"",
    "huge.pcapng": b"\x0a\x0d\x0d\x0a\xff\xff\xff\xff",
    "text.pcapng": b"not a capture at all",
    "late.pcapng": b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a"
    + bytes(12)
    + b"\x1c\x00\x00\x00"
    + b"\x06\x00\x00\x00\xf0\xff\xff\xff",
    "latin.edges": b"a b\xe9\n",
}
RUN = "run link_loss --engine graph"
WRONG = [
    ("topo dcell:n=1,k=1", "dcell: n must be at least 3, got 1"),
    ("topo dcel:n=4,k=1", "no family 'dcel', did you mean dcell? "),
    ("up star:n=2 --machines two.yaml", "--machines needs --detach NAME: "),
    ("up star:n=2 --machines two.yaml --detach n --nat", "--nat works on one machine only"),
    ("up play.yaml --machines two.yaml --detach n", "a lab with commands, events or checks works "),
    ("topo dcell:n=4,k=1 --plot x.gif", "x.gif: a figure is one of .png, .pdf, .svg"),
    (
        "topo dcell:n=4,k=2 --plot",
        "argument --plot: expected one argument (see weft topo --help)",
    ),
    (
        "topo dcell:n=6,k=2 --plot x.png",
        "dcell:n=6,k=2 has 2107 nodes; a picture shows at most 2000",
    ),
    ("route dcell:n=4,k=1 --routing drf h0 h1", "no scheme 'drf', did you mean d"),
    (
        "route dcell:n=4,k=1 --routing dfr:b=2 h0 h1",
        "scheme dfr: b must be at most 1, the levels of the network",
    ),
    (
        "route fattree:k=4 --routing dfr h0 h1",
        "scheme dfr runs on server-centric networks; fattree:k=4",
    ),
    (
        "route dcell:n=4,k=1 --routing tar h0 h1",
        "scheme tar needs a ficonn, where a server has two ports",
    ),
    (
        "route dcell:n=4,k=1 --routing ecmp h0 h1",
        "scheme ecmp runs on switch fabrics; dcell:n=4,k=1 is a server-centric network",
    ),
    (
        "route fattree:k=4 --routing dr h0 h1",
        "scheme dr runs on server-centric networks; fattree:k=4 is a switch fabric",
    ),
    ("route dcell:n=4,k=1 --routing dr h0 h20", "no server h20: they are h0 .. h19"),
    (
        "route dcell:n=4,k=1 --routing dr h0 w0",
        "w0 is a switch; paths lead from server to server",
    ),
    ("route dcell:n=4,k=1 --routing dr h0 h1 --fail h0-h1", "no link joins h0 and h1"),
    (
        "route dcell:n=4,k=1 h0 h1",
        "the following arguments are required: --routing (see weft route --help)",
    ),
    ("run link_los", "no experiment 'link_los', did you mean link_loss?"),
    ("run link_loss --engine fabrik", "link_loss: no engine 'fabrik', did you mean fabric?"),
    ("run link_loss --engine graph --jobs 0", "--jobs must be at least 1, got 0"),
    (
        "run link_loss --engine graph --seeds 0",
        "link_loss: seeds is a number of runs, 1 to 100000, got 0",
    ),
    (
        "run link_loss --engine graph --set lost=1",
        "link_loss: no parameter 'lost' (there are: failed_links, ",
    ),
    (
        "run link_loss --engine graph --set failed_links",
        "'failed_links': expected key=value[,value...]",
    ),
    (
        "run link_loss --engine graph --set failed_links=31",
        "link_loss: failed_links must be 0 .. 30 in dcell",
    ),
    (
        "run link_loss --engine graph --set routing=pr-gpi",
        "link_loss asks forwarding tables, which must say all: ",
    ),
    (
        "run link_loss --engine graph --set topology=fattree:k=4",
        "scheme dr runs on server-centric networks; ",
    ),
    (
        "run link_loss --engine graph --set routing=dr:hello=1",
        "scheme dr: no parameter 'hello', did you mean ",
    ),
    (
        "run link_loss --fresh --resume",
        "argument --resume: not allowed with argument --fresh",
    ),
    ("plot link_loss", "nothing of link_loss is stored in "),
    (
        "run link_loss --engine graph --results=/proc/none",
        "/proc/none: No such file or directory",
    ),
    ("decode no.pcapng", "no.pcapng: No such file or directory"),
    *(
        (f"{command} {name} -5{unit}", f"{says} '-5{unit}' is not a")
        for command, name, unit, says in (
            ("up star:n=2", "--rate", "mbit", "rate:"),
            ("up star:n=2 --rate 5mbit", "--host-rate", "mbit", "rate:"),
            ("up star:n=2 --rate 5mbit", "--delay", "ms", "delay:"),
            ("simulate star:n=2", "--detect", "ms", "argument --detect: time:"),
        )
    ),
    ("up star:n=2 --rate -x", "argument --rate: expected one argument"),
    ("up star:n=2 --packed x", "argument --packed: must be a whole number, got 'x'"),
    ("view --updates x", "argument --updates: must be a number, got 'x'"),
    ("uml --memory-mb -5 -- true", "argument --memory-mb: must be a whole number, 64 to 1048576"),
    ("up star:n=2 --seed -5", "argument --seed: must be a whole number, 0 or more, got '-5'"),
    ("conform dr --seed 1e3", "argument --seed: must be a whole number, 0 or more, got '1e3'"),
    ("simulate star:n=2 --bytes 0", "argument --bytes: must be a whole number, 1 or more"),
    ("nonsense", "no command 'nonsense' (there are: agent, "),
    ("rout dcell:n=4,k=1", "no command 'rout', did you mean route? "),
    ("up deep.yaml", "deep.yaml:1: nested too deeply: at most 32 "),
    ("up deep_mapping.yaml", "deep_mapping.yaml:1: nested too deeply"),
    ("up indented.yaml", "indented.yaml:"),
    ("up long.yaml", "long.yaml:1: it has more than 1048576 characters"),
    ("up alias.yaml", "alias.yaml:2: *a is an alias; write its value out"),
    ("up twice.yaml", "twice.yaml:2: 'topology' occurs twice"),
    ("up unknown.yaml", "unknown.yaml:2: "),
    ("up list.yaml", "list.yaml: "),
    ("up tab.yaml", "tab.yaml:2: malformed YAML"),
    ("up binary.yaml", "binary.yaml: malformed YAML: unacceptable character #x0000"),
    ("up nothere.yaml", "nothere.yaml: No such file"),
    ("topo file:nul.edges", "file:nul.edges: the name 'b\\x00c' has a control character"),
    ("topo file:escape.edges", "file:escape.edges: the name 'b\\x1b[31mc' has a control"),
    ("topo file:loop.edges", "file:loop.edges: a is joined to itself"),
    ("topo file:one.edges", "file:one.edges: line 1: expected two names"),
    ("topo file:apart.edges", "file:apart.edges"),
    ("topo file:rate.edges", "file:rate.edges: a-b: "),
    ("topo file:delay.edges", "file:delay.edges: a-b: delay needs a rate"),
    ("topo file:empty.edges", "file:empty.edges: there must be 1 .. "),
    ("topo file:nan.json", "file:nan.json: NaN is no number of JSON"),
    ("topo file:hosts.json", "node a: hosts must be an integer"),
    ("topo file:kind.json", "node a: kind must be host or switch, got 'router'"),
    ("topo file:ends.json", "file:ends.json is no json file of a graph: it has no 'target'"),
    ("topo file:broken.json", "file:broken.json: "),
    ("topo file:broken.graphml", "file:broken.graphml is no graphml file"),
    ("topo file:latin.edges", "file:latin.edges: it is not text in UTF-8"),
    ("topo file:nothere.edges", "file:nothere.edges: No such file"),
    ("topo star", "star"),
    ("topo star:n=0", "star: n must be at least 2, got 0"),
    ("topo star:n=x", "star: n must be an integer, got 'x'"),
    ("topo star:n=", "'star:n=': 'n=' is not key=value"),
    ("topo star:", "'star:': nothing after the colon"),
    ("topo star:n=2,n=3", "'star:n=2,n=3': n is given twice"),
    ("topo star:n=2,m=3", "star: no parameter 'm'"),
    ("topo fattree:k=3", "fattree: "),
    ("topo star:n=9999999999999999999", "star: n must be an integer of at most 18 digits"),
    ("topo ''", "'': expected name:key=value"),
    ("topo star:n=2 --plot nothere/x.png", "nothere/x.png: there is no folder nothere"),
    ("topo star:n=2 --plot folder.png", "folder.png is a folder; name a file in it"),
    ("topo star:n=2 --plot four.pcapng/x.png", "four.pcapng/x.png: there is no folder four.pcapng"),
    ("topo", "the following arguments are required: "),
    ("topo star:n=2 star:n=3", "unrecognized arguments: star:n=3"),
    ("route star:n=2 --routing ecmp h0 h9", "no server h9"),
    ("route star:n=2 --routing ecmp h0", "the following arguments are required: "),
    ("route star:n=2 --routing ecmp h0 h1 --fail h0", "'h0' is not a link; write its two ends"),
    (
        "route fattree:k=4 --routing ecmp h0 h1 --fail e0.0-c0",
        "no link joins e0.0 and c0 (links of e0.0: ",
    ),
    ("route fattree:k=4 --routing ecmp: h0 h1", "'ecmp:': nothing after the colon"),
    ("decode four.pcapng", "four.pcapng is no pcapng file"),
    ("decode empty.pcapng", "empty.pcapng is no pcapng file"),
    ("decode huge.pcapng", "huge.pcapng: a block of 4294967295 bytes"),
    ("decode late.pcapng", "late.pcapng: a block of 4294967280 bytes"),
    ("decode text.pcapng", "text.pcapng is no pcapng file"),
    ("decode folder.png", "folder.png: Is a directory"),
    ("decode", "decode: either a file, or --wireshark"),
    (
        "uml --timeout-s -1 -- true",
        "argument --timeout-s: must be a number of seconds above 0, got '-1'",
    ),
    (
        "uml --timeout-s nan -- true",
        "argument --timeout-s: must be a number of seconds above 0, got 'nan'",
    ),
    ("uml", "uml: no command; write weft uml -- COMMAND"),
    (
        "mpirun star:n=2 --timeout-s -1 -- hostname",
        "argument --timeout-s: must be a number of seconds above 0",
    ),
    (
        "mpirun star:n=2 --timeout-s soon -- hostname",
        "argument --timeout-s: must be a number of seconds",
    ),
    ("mpirun star:n=2", "mpirun: no program; write weft mpirun TOPOLOGY"),
    ("status --watch 0", "argument --watch: must be a number of seconds above 0, got '0'"),
    ("status --watch inf", "argument --watch: must be a number of seconds above 0 and below 1e+09"),
    (
        f"{RUN} --scheduler udp://x",
        "argument --scheduler: must be like tcp://127.0.0.1:8786, got 'udp://x'",
    ),
    (f"{RUN} --set 'routing=dr\x1b[31m'", "'dr\\x1b[31m': expected name:key=value"),
    (f"{RUN} --set failed_links={'9' * 105_000}", "link_loss: failed_links"),
    (f"{RUN} --set topology={'x' * 105_000}", "no family 'xxx"),
    (f"{RUN} --seeds x", "argument --seeds: must be a whole number, got 'x'"),
    (f"{RUN} --clock wall", "no --clock 'wall' (there are: "),
    (f"{RUN} --syscall-ns 5", "--syscall-ns needs --clock virtual"),
    ("run", "the following arguments are required: "),
    ("describe link_los", "no experiment 'link_los', did you mean link_loss?"),
    ("export link_loss --format xml", "no --format 'xml' (there are: csv, json, parquet)"),
    ("list dcel", "no kind or name 'dcel', did you mean dcell?"),
    ("completion tcsh", "no shell 'tcsh' (there are: bash, fish, zsh)"),
    ("up star:n=2 --routing spary", "no scheme 'spary', did you mean spray?"),
    ("simulate star:n=3 --fail h0-r0", "argument --fail: must be like h0-h4@2ms, got 'h0-r0'"),
    ("simulate star:n=3 --fail h0-r0@2ms-1", "argument --fail: time: '1' is not a time"),
    (
        "simulate star:n=3 --fail h0-r0@-2ms",
        "argument --fail: must be like h0-h4@2ms, got 'h0-r0@-2ms'",
    ),
    ("topo torus", "no family 'torus' (there are: "),
    (
        "simulate star:n=3 --fail h0-r0@2ms-1ms",
        "a link fails at 0 s or later, and before it is restored",
    ),
    (
        "simulate star:n=3 --daemons --fail h0-r0@2ms --detect 1ms",
        "with daemons no time is given at which a failure is known",
    ),
    (
        "simulate dcell:n=4,k=1 --routing static --daemons",
        "scheme static has no daemons that could be simulated",
    ),
    ("simulate star:n=2 --detect 1ms", "--detect needs --fail"),
    ("simulate star:n=2 --silent --fail h0-r0@2ms", "--silent needs --fail and --daemons"),
    ("simulate star:n=2 --silent --daemons", "--silent needs --fail and --daemons"),
    ("simulate star:n=2 --bytes 5 --flows x", "--bytes has no effect with --flows"),
    ("simulate star:n=2 --traffic uniform --flows x", "--traffic has no effect with --flows"),
    ("simulate star:n=2 --flows late.csv", "late.csv: a flow begins at 60 s, see --timeout-s"),
    ("simulate star:n=2 --flows ''", "argument --flows: must not be empty"),
    ("topo star:n=2 --plot ''", "argument --plot: must not be empty"),
    (f"{RUN} --results ''", "argument --results: must not be empty"),
    ("simulate star:n=2 --traffic ''", "argument --traffic: must not be empty"),
    ("simulate star:n=2 -o ''", "argument -o/--output: must not be empty"),
    ("simulate star:n=2 -o folder.png", "folder.png: this file cannot be written"),
    (
        "simulate star:n=2 --flows late.csv -o ./late.csv",
        "--output would replace late.csv, the file of --flows",
    ),
    ("simulate star:n=3 --fail h0-r0@60s", "--fail has no effect after --timeout-s"),
    (
        f"simulate star:n=2 --threads {parts.MOST_THREADS + 1}",
        f"argument --threads: must be a whole number, 1 to {parts.MOST_THREADS}, got '9'",
    ),
    (
        f"simulate star:n=2 --seed {2**64}",
        f"argument --seed: must be a whole number, 0 to {2**64 - 1}, got '{2**64}'",
    ),
    (
        "simulate star:n=2 --timeout-s 1e9",
        "argument --timeout-s: must be a number of seconds above 0 and below 1e+09, got '1e9'",
    ),
    ("simulate star:n=2 --delay 0.5us", "delay: '0.5us' is not a whole number of us"),
    ("simulate star:n=2 --delay 500ns", "delay: '500ns' is not a whole number of us"),
    ("simulate star:n=2 --packed 1", "unrecognized arguments: --packed"),
    ("up star:n=2 --rate 5", "rate: '5' has no unit and means 5 bit/s"),
    ("up star:n=2 --rate fast", "rate: 'fast' is not a rate"),
    ("up star:n=2 --delay 1ms", "--delay needs --rate"),
    ("up star:n=2 --clock virtual", "--clock virtual needs --rate"),
    ("up star:n=2 --detach UPPER", "run name 'UPPER': up to 16 of a-z, 0-9 and -"),
    ("up star:n=2 --seed 4", "--seed needs --clock virtual"),
    ("up star:n=2 --pace 4", "--pace needs --clock virtual"),
    ("up star:n=2 --rate 1gbit --clock virtual --detach x", "--detach needs the real clock"),
]


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Import what commands import, which is not counted below."""
    import matplotlib.figure  # noqa: F401
    import networkx  # noqa: F401

    from weft.experiments.engines import routes  # noqa: F401
    from weft.experiments.runner import definition

    definition.discover()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the wrong files, in which the commands run; results would be in it, too."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name, content in BINARY.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEFT_RESULTS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("simulate star:n=2 --flows /dev/zero", "/dev/zero:1: field larger than field limit"),
        ("check /dev/zero", "/dev/zero:1: it has more than 1048576 characters"),
        ("place star:n=2 --machines /dev/zero", "/dev/zero:1: it has more than 1048576 characters"),
    ],
)
def test_a_file_without_end_is_refused_before_it_fills_the_memory(command, says):
    words = ["-c", "from weft.experiments.cli.cli import main; raise SystemExit(main())"]
    limited = ["prlimit", f"--as={4 << 30}", sys.executable, *words, *command.split()]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(" (")[0].strip()) == (2, f"weft: {says}")


def contents(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(("command", "says"), WRONG, ids=[command[:60] for command, _ in WRONG])
def test_wrong_input_is_one_line_and_status_2(folder, capsys, command, says):
    before = contents(folder)
    began_s = time.process_time()
    status = cli.main(shlex.split(command))
    took_s = time.process_time() - began_s
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert re.sub(r"^(weft: file:\S+)@[0-9a-f]{8}", r"\1", err).startswith(f"weft: {says}")
    assert err[:-1].isprintable()
    assert len(err) < 2500
    assert contents(folder) == before
    assert took_s < 1


def test_there_are_a_hundred():
    assert len({command for command, _ in WRONG}) >= 100


def test_a_terminal_of_ascii_gets_escapes(monkeypatch, capsysbinary):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["list", "networks"]) == 0
    print("\xb1")
    stream.flush()
    assert stream.buffer.getvalue().endswith(b"\\xb1\n")
