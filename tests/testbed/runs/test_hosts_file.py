import os
import stat

import pytest

from weft.testbed.runs import hosts_file

NAMES = ["run.h0", "run.h1", "run.h2"]


@pytest.fixture
def links(tmp_path, monkeypatch):
    folder = tmp_path / "netns"
    monkeypatch.setattr(hosts_file, "LINKS", folder)
    return folder


def test_every_namespace_has_the_runs_file(links, tmp_path):
    hosts_file.write(tmp_path, [("10.0.0.1", ["h0", "0.0"]), ("10.0.0.2", ["h1"])])
    hosts_file.link(tmp_path, NAMES)
    texts = {(links / name / "hosts").read_text() for name in NAMES}
    assert texts == {hosts_file.FIRST_LINES + "10.0.0.1\th0 0.0\n10.0.0.2\th1\n"}
    hosts_file.unlink(NAMES[:1])
    assert [path.name for path in sorted(links.iterdir())] == NAMES[1:]
    assert (links / "run.h2" / "hosts").exists()
    hosts_file.unlink(NAMES)
    assert list(links.iterdir()) == []
    assert (tmp_path / "etc" / "hosts").exists()


@pytest.mark.parametrize("umask", [0, 0o077])
def test_it_is_readable_by_all_and_writable_by_its_owner_whatever_the_umask(links, tmp_path, umask):
    before = os.umask(umask)
    try:
        hosts_file.write(tmp_path, [("10.0.0.1", ["h0"])])
        hosts_file.link(tmp_path, NAMES)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "etc" / "hosts").stat().st_mode) == 0o644
    assert {stat.S_IMODE(place.stat().st_mode) & 0o022 for place in (tmp_path / "etc", links)} == {
        0
    }


def test_where_a_link_has_no_second_name_every_namespace_has_its_own(links, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(31, "Too many links")

    monkeypatch.setattr(os, "link", refuse)
    hosts_file.link(tmp_path, NAMES)
    assert [(links / name).readlink() for name in NAMES] == [tmp_path / "etc"] * 3


def test_a_name_that_is_taken_is_refused_and_what_has_it_stays(links, tmp_path):
    links.mkdir()
    (links / NAMES[1]).mkdir()
    with pytest.raises(FileExistsError):
        hosts_file.link(tmp_path, NAMES)
    hosts_file.unlink(NAMES)
    assert [path.name for path in links.iterdir()] == [NAMES[1]]


def test_of_runs_without_a_directory_the_links_are_removed_and_no_others(links, tmp_path):
    runs = tmp_path / "runs"
    for run in ("lost", "gone", "up"):
        hosts_file.link(runs / run, [f"weft.{run}.h0", f"weft.{run}.h1"])
    (runs / "up").mkdir(parents=True)
    (links / "weft.lost.h2").mkdir()  # a user's, as is the next
    (links / "weft.lost.h3").symlink_to(runs / "lost" / "own")
    (links / "other").symlink_to(tmp_path / "elsewhere" / "etc")
    assert hosts_file.unlink_lost(runs) == ["gone", "lost"]
    kept = ["other", "weft.lost.h2", "weft.lost.h3", "weft.up.h0", "weft.up.h1"]
    assert [path.name for path in sorted(links.iterdir())] == kept
    assert hosts_file.unlink_lost(runs) == []


def test_before_the_first_run_nothing_is_lost(links, tmp_path):
    assert hosts_file.unlink_lost(tmp_path) == []
