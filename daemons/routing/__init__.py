"""Pure functions from addresses or a graph to paths, on integers, that several schemes share."""
