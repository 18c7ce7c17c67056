"""FatPaths (Besta et al., SC 2020) with real packets: layers, flowlets and the purified transport."""
