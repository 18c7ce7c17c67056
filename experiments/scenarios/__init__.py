"""What experiments share: failures, reachability, predicted paths, one run of a switch fabric."""
