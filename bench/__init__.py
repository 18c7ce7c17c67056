"""Figures of speed, each printed beside what it is compared with: `make bench`."""
