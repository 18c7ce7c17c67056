import pytest

from weft.testbed.labs import text_file


def test_a_file_without_end_is_read_to_the_most_characters(monkeypatch):
    assert len(text_file.text_of("/dev/zero", 10)) == 11
    monkeypatch.setattr(text_file, "MOST_GRAPH_CHARACTERS", 10)
    with pytest.raises(ValueError, match=r"^file:/dev/zero: it is larger than 10 characters$"):
        text_file.graph("/dev/zero")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"latin: it is not text in UTF-8$"):
        text_file.text_of(str(tmp_path / "latin"))
    with pytest.raises(ValueError, match=r"^file:ring,p: No such file or directory; p=N, hosts"):
        text_file.graph("ring,p")
