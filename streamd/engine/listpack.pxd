# cython: language_level=3
"""Listpacks: Redis's packed list of strings and integers, byte for byte. See listpack.pyx."""
