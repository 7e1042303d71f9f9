"""Memory of this process that nothing uses any more."""

import ctypes


def give_back() -> None:
    """Hand freed memory back to the system, where the C library can be asked to (glibc); it keeps most of it else."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
