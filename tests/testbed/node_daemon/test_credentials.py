"""The file of keys, and the numbers that outlive daemons."""

from __future__ import annotations

import stat
from itertools import pairwise
from pathlib import Path

import pytest

from weft.testbed.linux import clock
from weft.testbed.node_daemon import sealed_channel
from weft.testbed.node_daemon.sealed_channel import SequenceFile


def test_a_key_is_for_its_owner_alone_and_drawn_anew_each_time(tmp_path: Path) -> None:
    sealed_channel.create_keys(tmp_path)
    (first,) = sealed_channel.read_keys(tmp_path)
    assert stat.S_IMODE((tmp_path / sealed_channel.KEY_FILE).stat().st_mode) == 0o600
    sealed_channel.create_keys(tmp_path)
    assert sealed_channel.read_keys(tmp_path) != (first,)


def test_whoever_reads_during_a_replacement_opens_what_others_seal(tmp_path: Path) -> None:
    sealed_channel.create_keys(tmp_path)
    seen = [sealed_channel.read_keys(tmp_path)]
    sealed_channel.rotate_keys(tmp_path, lambda: seen.append(sealed_channel.read_keys(tmp_path)))
    old, new = seen[0][0], seen[-1][0]
    assert seen == [(old,), (old, new), (new, old), (new,)]
    for before, after in pairwise(seen):  # some have read the one, some the other
        assert before[0] in after
        assert after[0] in before


def test_what_a_daemon_does_not_obey_leaves_both_keys(tmp_path: Path) -> None:
    sealed_channel.create_keys(tmp_path)
    told = iter([None])

    def tell() -> None:
        next(told)

    with pytest.raises(StopIteration):
        sealed_channel.rotate_keys(tmp_path, tell)
    assert len(sealed_channel.read_keys(tmp_path)) == 2
    sealed_channel.rotate_keys(tmp_path, lambda: None)
    assert len(sealed_channel.read_keys(tmp_path)) == 1


def test_without_keys_there_is_none_to_replace_and_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no file of keys"):
        sealed_channel.read_keys(tmp_path)
    sealed_channel.create_keys(tmp_path, authenticated=False)
    assert sealed_channel.read_keys(tmp_path) == ()
    with pytest.raises(ValueError, match="no key to replace"):
        sealed_channel.rotate_keys(tmp_path, lambda: None)
    (tmp_path / sealed_channel.KEY_FILE).write_text("77\n")
    with pytest.raises(ValueError, match="no key of 32 bytes"):
        sealed_channel.read_keys(tmp_path)
    (tmp_path / sealed_channel.KEY_FILE).write_text("no digits\n")
    with pytest.raises(ValueError, match="no key of 32 bytes"):
        sealed_channel.read_keys(tmp_path)


def test_numbers_are_each_nodes_own_and_outlive_who_writes_them(tmp_path: Path) -> None:
    ports = {0: (1, 2, 3), 2: (9,)}
    sealed_channel.create_sequences(
        tmp_path, 4, sealed_channel.row_words(len(near) for near in ports.values())
    )
    places = set()
    for node in range(4):
        row = SequenceFile(tmp_path).row(node, ports)
        for port, near in ports.items():
            held, sent, heard = row.at(port)
            assert heard.keys() == set(near)
            for at in (sent, *heard.values()):
                held[at] = 1000 * node + 10 * port + at
                places.add(held[at])
    assert len(places) == 4 * (4 + 2)
    held, sent, heard = SequenceFile(tmp_path).row(3, ports).at(2)
    assert (held[sent], held[heard[9]]) == (3000 + 20 + sent, 3000 + 20 + heard[9])


def test_an_incarnation_rises_though_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed_channel.create_sequences(tmp_path, 1, 1)
    monkeypatch.setattr(clock, "wall_ns", lambda: 10**18)
    assert SequenceFile(tmp_path).row(0, {}).next_incarnation() == 10**18
    monkeypatch.setattr(clock, "wall_ns", lambda: 5)
    assert SequenceFile(tmp_path).row(0, {}).next_incarnation() == 10**18 + 1
