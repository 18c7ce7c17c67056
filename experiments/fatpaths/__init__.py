"""The questions of FatPaths (Besta et al., SC 2020)."""
