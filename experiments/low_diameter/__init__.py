"""Low-diameter networks by the graph engine: sizes, cost, path diversity, layers and what they carry."""
