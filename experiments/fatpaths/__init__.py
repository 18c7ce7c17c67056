"""FatPaths (Besta et al., SC 2020): low-diameter networks, layers and transports."""
