"""FatPaths: layers of a low-diameter network, each with its own paths, between which senders
balance (Besta et al.).
"""
