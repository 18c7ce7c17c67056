"""FatPaths (Besta et al.): layers of a low-diameter network, between which senders balance.

Each layer has its own paths.
"""
