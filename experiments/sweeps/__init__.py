"""How the runs of a sweep are carried out: on this machine, on a cluster, under the virtual clock."""
