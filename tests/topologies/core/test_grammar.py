import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weft.topologies import FAMILY_MODULES, build, families, family
from weft.topologies.core.address import parse_digits
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import decimal, integer, parse, service, unparse

KEY = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(lambda key: key != "of")
VALUE = st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"]), min_size=1)
# few values, so that what is built stays small or is refused as far too large
NUMBERS = st.sampled_from(
    [-1, 0, 1, 2, 3, 4, 5, 6, 8, 23, 100, 5_000_000, 2**24, 10**17, 10**18, "9" * 5000]
)


def refusal(act):
    """Return the text of the ValueError that `act` raises; None if it raises none."""
    try:
        act()
    except ValueError as error:
        return str(error)
    return None


@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True),
    st.dictionaries(KEY, VALUE.filter(lambda v: v == v.strip())),
)
def test_parse_reads_what_unparse_writes(name, values):
    assert parse(unparse(name, values)) == (name, values)


@given(
    st.dictionaries(KEY, VALUE.filter(lambda v: v == v.strip())),
    st.text(min_size=1).map(lambda v: v.strip() or "x"),
)
def test_what_follows_of_is_one_value(values, inner):
    spec = unparse("name", {**values, "of": inner})
    assert parse(spec) == ("name", {**values, "of": inner})


@given(st.text() | st.from_regex(r"[a-z]+:([a-z]+=[0-9a-z]*,?)*"))
@example("dcell:n=4,k=1\n")
@example("dcell:n=4\n,k=1")
@example("dcell:n=" + "9" * 5000)
@example("dcell:n=٤,k=1")
def test_any_text_is_read_or_refused_in_one_line(text):
    def read():
        name, values = parse(text)
        family(name).parameters_from(values)

    assert len((refusal(read) or "fine").splitlines()) == 1


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(FAMILY_MODULES)), st.data())
def test_any_numbers_make_a_network_or_are_refused_in_one_line(name, data):
    keys = data.draw(st.sets(st.sampled_from(list(family(name).parameters))))
    spec = unparse(name, {key: data.draw(NUMBERS) for key in sorted(keys)})
    line = refusal(lambda: build(spec).check())
    assert line is None or (line.startswith(f"{name}: ") and len(line.splitlines()) == 1)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("dcell:n=1,k=1", "dcell: n must be at least 3, got 1"),
        ("dcell:n=4", "dcell: k is missing, for example dcell:n=4,k=1"),
        ("dcell:n=x,k=1", "dcell: n must be an integer, got 'x'"),
        ("dcell:n=4,k=1,q=2", "dcell: no parameter 'q' (there are: k, n)"),
        ("dcell:n=99999999,k=0", "dcell: n must be at most 16777216, got 99999999"),
        (
            "dcel:n=4,k=1",
            "no family 'dcel', did you mean dcell? (there are: "
            f"{', '.join(sorted((*FAMILY_MODULES, 'file', 'planes')))}; "
            f"packages of {sys.prefix} are searched)",
        ),
        ("dcell:n=4,n=4", "'dcell:n=4,n=4': n is given twice"),
        ("dcell:n", "'dcell:n': 'n' is not key=value"),
        ("dcell:", "'dcell:': nothing after the colon; expected dcell:key=value,..."),
        ("", "'': expected name:key=value,... such as dcell:n=4,k=1 or dr:hello_ms=50"),
        ("ficonn:n=5,k=1", "ficonn: n must be even, got 5"),
        ("fattree", "fattree: k is missing, for example fattree:k=4 or fattree:n=2,d=4"),
        ("fattree:n=2", "fattree: d is missing, for example fattree:k=4 or fattree:n=2,d=4"),
        ("fattree:d=2", "fattree: n is missing, for example fattree:k=4 or fattree:n=2,d=4"),
        ("fattree:k=5", "fattree: k must be even, got 5"),
        (
            "fattree:k=4,n=3,d=2",
            "fattree: give k, or n and d, but not both; fattree:k=4 is the same as fattree:n=3,d=2",
        ),
        (
            "fattree:k=4,d=2",
            "fattree: give k, or n and d, but not both; fattree:k=4 is the same as fattree:n=3,d=2",
        ),
        (
            "dcell:n=7,k=3",
            "dcell: 1.16e+07 nodes and 2.55e+07 links are too many, the most is 16777216 each",
        ),
        ("dcell:n=3,k=60", "dcell: n=3, k=60 has too many servers for 63 bits"),
        # n^4 is between 2^63 and 2^64
        ("dcell:n=60000,k=2", "dcell: n=60000, k=2 has too many servers for 63 bits"),
        (
            "fattree:k=270",
            "fattree: labels of 270x135x135 need 25 bits of address; 10.0.0.0/8 has 24",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(spec, line):
    assert refusal(lambda: build(spec)) == line


@pytest.mark.parametrize("text", ["", "1.5", "1e3", " 4", "+4", "1_000", "٤"])
def test_only_plain_digits_are_an_integer(text):
    with pytest.raises(ValueError, match="must be an integer"):
        integer("x", "n", text, least=0)


@pytest.mark.parametrize(
    ("text", "value"), [("0.6", 600), ("0.65", 650), ("0.065", 65), ("1", 1000), ("1.000", 1000)]
)
def test_a_parameter_with_decimals_is_an_integer_of_its_last_digit(text, value):
    rho = IntegerParameter(meaning="", least=65, most=1000, decimals=3)
    assert rho.value("x", "rho", text) == value
    assert rho.value("x", "rho", rho.written(value)) == value


@pytest.mark.parametrize("text", ["", ".5", "0.", "1e-1", "-0.5", "0.6543", " 0.5", "0,5", "٤"])
def test_only_plain_decimals_are_a_number(text):
    with pytest.raises(ValueError, match="x: rho must be a number with at most 3 decimals, got"):
        decimal("x", "rho", text, decimals=3, least=0, most=1000)


@pytest.mark.parametrize("text", ["0.064", "1.001", "2"])
def test_a_number_out_of_range_is_refused(text):
    with pytest.raises(ValueError, match=rf"x: rho must be 0.065 \.\. 1, got {text}"):
        decimal("x", "rho", text, decimals=3, least=65, most=1000)


def test_every_family_builds_its_example():
    for name, found in families().items():
        topology = build(found.example)
        topology.check()
        assert found.name == name == topology.family
        assert topology.spec == found.example


def test_an_integer_has_at_most_18_digits():
    assert integer("dcell", "n", "9" * 18, least=0) == 10**18 - 1
    with pytest.raises(ValueError, match="dcell: n must be an integer of at most 18 digits, got 9"):
        integer("dcell", "n", "9" * 19, least=0)


def test_a_digit_of_a_label_has_at_most_8_decimals():
    assert parse_digits(f"1.{'9' * 8}.0") == (1, 10**8 - 1, 0)
    assert parse_digits(f"1.{'9' * 9}.0") == ()


def test_a_service_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    about = tmp_path / "weft_odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-odd\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[weft.services]\nodd = weft_missing:f\n")
    monkeypatch.syspath_prepend(tmp_path)
    reason = r"^weft_missing:f, odd of weft\.services: ModuleNotFoundError: No module"
    with pytest.raises(ValueError, match=reason):
        service("odd")
    assert service("even") is None
