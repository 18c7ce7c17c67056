"""Meanings of the columns of FatPaths' experiments on graphs."""

from __future__ import annotations

COLLISIONS = {
    "hosts": "hosts of the network",
    "flow_shares": "list: which share of the ordered pairs of routers has 0, 1, 2, ... flows",
    "over_three_fraction": "pairs of routers with more than three flows",
    "nine_or_more_fraction": "pairs of routers with nine or more",
    "most_flows": "flows of the pair that has most",
}
DIVERSITY = {
    "used_hops": "links of a path that counts, at the most",
    "radix": "links of a router to other routers, k'",
    "shortest_length_shares": "list: which share of pairs has shortest paths of 0, 1, 2, ... links",
    "minimal_disjoint_shares": (
        "list: which share of the sampled pairs has 0, 1, 2, ... disjoint shortest paths, c_min"
    ),
    "one_shortest_fraction": "pairs with a single shortest path",
    "cdp_mean_fraction": "disjoint paths of a pair (CDP), of k', mean",
    "cdp_mean_error_fraction": "half of its 95 % interval, from the number of pairs",
    "cdp_tail_fraction": "the CDP, of k', that 99 % of the pairs reach",
    "cdp_shares": "list: which share of pairs has 0, 1, 2, ... disjoint paths",
    "interference_mean_fraction": "paths that two pairs take from each other (PI), of k', mean",
    "interference_mean_error_fraction": (
        "half of its 95 % interval, from the number of fours of routers"
    ),
    "interference_tail_fraction": "the PI, of k', that 99.9 % do not exceed",
    "paper_*_fraction": "the value of table IV",
    "interference_shares": "list: the shares of fours with a PI of 0 or less, of 1, of 2 and so on",
}
LAYERED_THROUGHPUT = {
    "throughput": (
        "T: how many times the worst-case demands can be sent over the scheme's paths (MAT)"
    ),
    "bound_throughput": (
        "T over all paths of at most D + 1 links (bound=short), or over all paths (bound=flow)"
    ),
    "fewest_paths": "different paths of the demand that has fewest; missing under valiant",
    "mean_paths": "different paths of a demand, mean",
    "fewest_paths_of_any_pair": (
        "different paths of the pair of routers that has fewest; of schemes with layers"
    ),
    "mean_paths_of_all_pairs": "different paths of a pair of routers, mean",
    "three_disjoint_fraction": (
        "ordered pairs of routers whose paths in the layers include three disjoint ones"
    ),
    "mean_hops": "mean links of a path over all pairs and layers",
}
SIZES = {
    "diameter": "links of the longest of all shortest paths between routers with hosts, D",
    "radix": "links of a router to other routers, k'",
    "routers": "routers, N_r",
    "hosts": "hosts, N",
    "router_links": "links between routers",
    "mean_hops": "mean links between two routers with hosts, d",
    "total_network_load": "TNL, k' N_r / d: the most flows on shortest paths that share no link",
    "as_in_paper": (
        "whether D, k', N_r and N are those of table IV; missing where it has no such network"
    ),
    "as_table_v": "whether routers, k' and D agree with the formulas of table V",
    "printed_hosts_of_router": "hosts of a router by the forms of table V",
}
COST = {
    "network": "the family's network of nearest size",
    "network_hosts": "its hosts",
    "radix": "ports of a router",
    "edge_density": "cables for each host",
    "router_cost_usd": "routers and their ports, for each host",
    "copper_cost_usd": "copper cables, for each host",
    "fibre_cost_usd": "fibre cables, for each host",
    "host_cost_usd": "all of it, for each host",
}
