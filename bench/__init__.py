"""Figures of speed, each printed beside what it is compared with, measured in the same run: `make
bench`.
"""
