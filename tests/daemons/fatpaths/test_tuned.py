"""Parameters of constructions by family of networks and number of layers."""

import pytest

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.scheme import BEST, DEFAULT, tuned
from weft.topologies import build


def test_the_nearest_number_of_layers_counts_and_other_families_have_the_papers_rho():
    assert tuned("slimfly", 8) == tuned("slimfly", 9) == BEST["slimfly"][9]
    assert tuned("slimfly", 1) == BEST["slimfly"][4]
    assert tuned("slimfly", 63) == BEST["slimfly"][16]
    assert tuned("complete", 9) == DEFAULT


@pytest.mark.parametrize("construction", ["random", "overlap"])
def test_zero_stands_for_the_best_parameters(construction):
    topology, best = build("slimfly:q=3,p=2"), tuned("slimfly", 9)

    def tables(settings):
        text = f"fatpaths:construction={construction}{settings}"
        return scheme.tables(topology, registry.scheme(text)[1])

    same = f",rho={best.rho},paths={best.paths}"
    assert (tables("") == tables(",rho=0,paths=0")).all()
    assert (tables("") == tables(same)).all()
    assert (tables("") != tables(",rho=0.8,paths=0.4,extra_links=2")).any()


SMALL = (
    *("hyperx:l=2,s=2,p=1", "hyperx:l=2,s=3,p=2", "hyperx:l=2,s=4,p=1", "hyperx:l=3,s=2,p=1"),
    *("complete:n=2,p=1", "complete:n=3,p=1", "complete:n=4,p=2", "slimfly:q=3,p=2"),
    *("dragonfly:p=1,palm=0", "dragonfly:p=2,palm=0", "fattree:k=2", "fattree:k=4"),
    *("xpander:r=3,l=2,p=1,seed=1", "xpander:r=4,l=4,p=2,seed=1"),
    *("jellyfish:n=6,r=3,p=1,seed=1", "jellyfish:n=8,r=2,p=1,seed=1"),
    "jellyfish:n=40,r=3,p=1,seed=1",
)


@pytest.mark.parametrize("layers", [4, 9])
@pytest.mark.parametrize("spec", SMALL)
def test_the_best_density_keeps_small_networks_in_one_piece(spec, layers):
    topology = build(spec)
    tables = scheme.tables(topology, registry.scheme(f"fatpaths:layers={layers}")[1])
    assert tables.shape == (layers, topology.switches, topology.switches)
