"""Switch networks in tiers: fat-trees, folded Clos networks, the star."""
