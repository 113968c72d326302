# cython: language_level=3
"""ValueLoader: what reads the values of one type from an RDB stream. ValueType.loader makes one for each reader."""

__all__ = ["ValueLoader"]


cdef class ValueLoader:
    """Reads one value after another from a window, whatever their type bytes are.

    Invalid data raises CorruptFileError (Window.corrupt).
    """

    def __init__(self, ValueType type not None, Window window not None):
        self.type = type
        self.window = window

    cpdef object begin(self, int rdb_type):
        """Read the next value into `value`.

        Returns None, or what has to be run to its end: an iterator that stops wherever a step may end.
        """
        raise NotImplementedError

    def take_over(self, context):
        """What was loaded apart is now the data of the server with this context, see LoadOptions."""
