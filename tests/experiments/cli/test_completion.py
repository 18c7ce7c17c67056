"""Tab: what a shell is told, and that bash makes of it what it should."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

import argcomplete
import pytest

from weft.experiments.cli import cli, completion
from weft.testbed.network.handle import Handle
from weft.topologies import build

SHELLS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
PROGRAM = (
    f"#!{sys.executable}\nfrom weft.experiments.cli import cli\nraise SystemExit(cli.main())\n"
)


@pytest.fixture
def tab():
    """Return a function that completes a line at its end."""

    def press(line):
        parser = cli.parser()
        completion.prepare(parser)
        finder = argcomplete.CompletionFinder(parser)
        prequote, prefix, _, words, wordbreak = argcomplete.split_line(line, len(line))
        return {one.strip() for one in finder._get_completions(words, prefix, prequote, wordbreak)}

    return press


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("weft des", {"describe"}),
        ("weft run hop_", {"hop_length", "hop_histogram"}),
        ("weft describe link_l", {"link_loss"}),
        ("weft topo slimf", {"slimfly:q=5,p=4"}),
        ("weft up dcell --routing pr-", {"pr-gp0", "pr-gpi", "pr-gpe"}),
        ("weft run link_loss --set fai", {"failed_links="}),
        ("weft run no_such --set fai", set()),
        ("weft completion b", {"bash"}),
        ("weft list sche", {"schemes"}),
        ("weft run link_loss --engine fa", {"fabric"}),
        ("weft route dcell:n=3,k=1 --routing dr h1", {"h1", "h10", "h11"}),
        ("weft route dcell:n=3,k=1 --routing dr --fail h0-", {"h0-h3", "h0-w0"}),
        ("weft route nothing:n=2 --routing dr h", set()),
    ],
)
def test_tab(tab, line, answers):
    assert tab(line) == answers


def test_nodes_and_links_are_those_of_the_run(tab, monkeypatch):
    network = SimpleNamespace(topology=build("star:n=2"))
    monkeypatch.setattr(Handle, "open", lambda name: {"net": network}[name])
    assert tab("weft fail --run net h") == {"h0", "h1", "h0-r0", "h1-r0"}
    assert tab("weft restart --run net r") == {"r0"}
    assert tab("weft impair --run net h1") == {"h1-r0"}


def test_a_line_with_its_command_loads_that_command_alone(monkeypatch):
    monkeypatch.setenv(cli.COMPLETING, "1")
    monkeypatch.setenv("COMP_LINE", "weft fail --sil")
    parsers = []
    monkeypatch.setattr(completion, "complete", parsers.append)
    assert cli.main([]) == 2
    (action,) = (action for action in parsers[0]._actions if action.choices)
    assert "fail" in action.choices
    assert "list" not in action.choices


def test_values_of_the_sweep_are_offered():
    parsed = cli.parser().parse_args(["run", "link_loss"])
    values = completion.assignments("failed_links=", parsed_args=parsed)
    assert set(values) == {f"failed_links={number}" for number in (0, 1, 2, 4, 8)}
    assert list(completion.assignments("nothing=", parsed_args=parsed)) == []


def test_commands_and_options_are_completed(tab):
    assert {"list", "topo", "run", "up", "down"} <= tab("weft ")
    assert {"--seeds", "--set", "--dry-run"} <= tab("weft run link_loss --")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_code_is_that_of_the_shell(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert "weft" in code
    assert cli.COMPLETING in code
    if shutil.which(shell):
        subprocess.run(SHELLS[shell], input=code, text=True, check=True)


@pytest.mark.slow
def test_bash_completes(tmp_path):
    """With a program `weft` that is this one."""
    program = tmp_path / "weft"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    script = f"""
        PATH={tmp_path}:$PATH
        eval "$(weft completion bash)"
        COMP_WORDS=(weft describe hop_l) COMP_CWORD=2 COMP_LINE="weft describe hop_l" COMP_POINT=19 COMP_TYPE=9
        $(complete -p weft | sed 's/.*-F \\([^ ]*\\).*/\\1/') weft hop_l describe
        echo "${{COMPREPLY[@]}}"
    """  # noqa: E501
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["hop_length"], said.stderr
