from itertools import product

import numpy as np
import pytest

from weft.topologies.low_diameter.diameter_two import field, prime_power

POWERS = {
    2: (2, 1),
    3: (3, 1),
    4: (2, 2),
    5: (5, 1),
    7: (7, 1),
    8: (2, 3),
    9: (3, 2),
    16: (2, 4),
    25: (5, 2),
    27: (3, 3),
}


@pytest.mark.parametrize("q", [*POWERS, 49, 64, 81])
def test_it_is_a_field(q):
    """Every axiom, on all elements; associativity and distributivity on all triples for small
    fields."""
    plus, times = field(q).plus(), field(q).times()
    every = np.arange(q)
    for table, unit, group in ((plus, 0, every), (times, 1, every[1:])):
        assert (table == table.T).all()
        assert (table[unit] == every).all()
        for element in group:
            assert sorted(table[element, group]) == group.tolist()  # so there is an inverse
    some = every if q < 28 else every[:: q // 20]
    for a, b in product(some, some):
        assert (plus[plus[a, b]] == plus[a, plus[b]]).all()
        assert (times[times[a, b]] == times[a, times[b]]).all()
        assert (times[a, plus[b]] == plus[times[a, b], times[a]]).all()


@pytest.mark.parametrize("q", [5, 7, 9, 16, 27, 29])
def test_its_first_powers_are_those_of_a_primitive_element(q):
    galois = field(q)
    xi, times = galois.powers[1 % (q - 1)], galois.times()
    assert sorted(galois.powers) == list(range(1, q))
    assert [times[xi, power] for power in galois.powers] == [*galois.powers[1:], galois.powers[0]]


def test_a_prime_field_is_arithmetic_modulo_the_prime():
    a, b = np.arange(13)[:, None], np.arange(13)
    assert (field(13).plus() == (a + b) % 13).all()
    assert (field(13).times() == a * b % 13).all()


@pytest.mark.parametrize("q", range(30))
def test_prime_powers(q):
    assert prime_power(q) == (POWERS.get(q) or ((q, 1) if q in (11, 13, 17, 19, 23, 29) else None))


@pytest.mark.parametrize("q", [0, 1, 6, 12, 100])
def test_other_sizes_are_refused(q):
    with pytest.raises(
        ValueError, match=rf"^there is no field of {q} elements: {q} is not a power of a prime$"
    ):
        field(q)
