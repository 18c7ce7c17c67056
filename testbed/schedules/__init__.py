"""Schedules of parallel programs as data, the collectives, GOAL files, and their replay."""
