# cython: language_level=3
"""The numbers of the RDB format, for Python modules. See codes.pxd, where they are declared."""
