"""What an experiment is, how its sweep is carried out here or on a cluster, and where its results
are.
"""
