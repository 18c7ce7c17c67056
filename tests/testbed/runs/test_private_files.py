"""Files of ours are closed to others, and are where we think they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.testbed.runs import private_files

READ, MAKE = os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_they_are_made_closed_and_closed_if_they_are_open(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "folder" / "file"
    for _ in range(2):
        private_files.make_folder(folder)
        private_files.write(file, b"text", to_disk=True)
        assert (mode(folder), mode(file), file.read_bytes()) == (0o700, 0o600, b"text")
        folder.chmod(0o777)
        file.chmod(0o666)
    os.close(private_files.open_file(file, READ))
    assert mode(file) == 0o600


def test_a_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "folder").symlink_to(tmp_path)
    for flags in (READ, MAKE):
        with pytest.raises(
            OSError, match=r"link is a link, and links are not followed here; remove it"
        ):
            private_files.open_file(tmp_path / "link", flags)
    with pytest.raises(OSError, match="folder is a link"):
        private_files.make_folder(tmp_path / "folder")
    assert victim.read_text() == "kept"


def test_what_is_no_file_is_refused_and_what_is_not_there_is_not_found(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is no regular file"):
        private_files.open_file(tmp_path / "pipe", os.O_RDWR)
    with pytest.raises(FileNotFoundError):
        private_files.open_file(tmp_path / "nothing", READ)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's files")
def test_another_users_are_refused_and_told_of(tmp_path):
    (tmp_path / "theirs").touch()
    (tmp_path / "folder").mkdir()
    for name in ("theirs", "folder"):
        os.chown(tmp_path / name, 12345, 12345)
    with pytest.raises(
        OSError, match=r"theirs belongs to user 12345, not to 0 as it must; remove it"
    ):
        private_files.open_file(tmp_path / "theirs", READ)
    with pytest.raises(OSError, match="folder belongs to user 12345"):
        private_files.make_folder(tmp_path / "folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_nobody_else_can_lock_them(tmp_path):
    private_files.make_folder(tmp_path / "folder")
    private_files.write(tmp_path / "folder" / "lock", b"")
    if not (pid := os.fork()):
        os.setuid(12345)
        try:
            os.open(tmp_path / "folder" / "lock", READ)
        except PermissionError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    file, link = tmp_path / "file", tmp_path / "link"
    private_files.write_whole(file, b"first")
    assert mode(file) == 0o666
    file.chmod(0o640)
    link.symlink_to(file)
    private_files.write_whole(file, b"second")
    assert (mode(file), file.read_bytes()) == (0o640, b"second")
    private_files.write_whole(link, b"third")
    assert link.is_symlink()
    private_files.write_whole(Path("/dev/null"), b"nothing")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            private_files.write_whole(file, b"fourth")
    assert (file.read_bytes(), len(list(tmp_path.iterdir()))) == (b"third", 2)
    for path, line in (("/dev/full", "/dev/full: No space left"), (tmp_path, "Is a directory")):
        with pytest.raises(OSError, match=line):
            private_files.write_whole(Path(path), b"fifth")


def as_another_user(act):
    """Return what `act` raises in a process of user 12345, as text; "" for nothing."""
    near, far = os.pipe()
    if not (pid := os.fork()):
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)
        try:
            act()
        except OSError as error:
            os.write(far, str(error).encode())
        os._exit(0)
    os.close(far)
    os.waitpid(pid, 0)
    with open(near) as pipe:
        return pipe.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
@pytest.mark.parametrize(
    ("owner", "file_mode", "content"),
    [
        (12345, 0o644, "new"),
        (12345, 0o444, "old"),  # write-protected
        (0, 0o666, "new"),
        (0, 0o644, "old"),
    ],
)
def test_a_file_that_one_may_not_write_is_not_replaced(
    tmp_path, monkeypatch, owner, file_mode, content
):
    os.chown(tmp_path, 12345, 12345)
    monkeypatch.chdir(tmp_path)  # the folders above are closed
    file = Path("file")
    file.write_text("old")
    os.chown(file, owner, owner)
    file.chmod(file_mode)
    error = as_another_user(lambda: private_files.write_whole(file, b"new"))
    assert (file.read_text(), file.stat().st_uid, mode(file)) == (content, owner, file_mode)
    assert error == ("" if content == "new" else f"[Errno 13] Permission denied: '{file}'")


def test_a_draft_follows_no_link(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / f".weft-{bytes(8).hex()}.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        private_files.write_whole(tmp_path / "file", b"new")
    assert (victim.read_text(), len(list(tmp_path.iterdir()))) == ("kept", 2)


@pytest.fixture
def places(tmp_path):
    """A file, its folder, and the one above, all ours."""
    folder = tmp_path / "above" / "folder"
    folder.mkdir(0o755, parents=True)
    folder.parent.chmod(0o755)
    (folder / "file").write_text("text")
    (folder / "file").chmod(0o644)
    return folder / "file", folder, folder.parent


def test_a_file_that_is_ours_all_the_way_is_trusted_and_links_to_it_are_followed(places, tmp_path):
    file, folder, above = places
    (tmp_path / "link").symlink_to(folder)
    assert private_files.trusted_file(tmp_path / "link" / "file") == file
    above.chmod(0o1777)  # as /tmp is
    assert private_files.trusted_file(file) == file


@pytest.mark.parametrize(
    ("number", "open_mode"), [(0, 0o664), (0, 0o646), (1, 0o775), (1, 0o1777), (2, 0o757)]
)
def test_a_file_that_others_may_change_or_replace_is_not_trusted(
    places, tmp_path, number, open_mode
):
    place = places[number]
    place.chmod(open_mode)
    (tmp_path / "link").symlink_to(places[0])
    for path in (places[0], tmp_path / "link"):
        with pytest.raises(
            OSError, match=f"is not used: other users may write to {place}; chmod go-w {place}$"
        ):
            private_files.trusted_file(path)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_another_users_is_not_trusted(places, number):
    os.chown(places[number], 1234, 1234)
    with pytest.raises(OSError, match=f"{places[number]} belongs to user 1234, not to root or 0"):
        private_files.trusted_file(places[0])
