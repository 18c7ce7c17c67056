"""weft: data-center routing on a real Linux kernel.

Its rooms are the four folders that lie beside this one in the repository; here are links to them, so that they are
imported as parts of one package and clash with nobody's own.
"""
