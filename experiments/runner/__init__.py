"""What an experiment is, how its sweep is carried out, and where results are kept."""
