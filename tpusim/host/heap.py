"""Memory of this process that nothing uses any more."""

import ctypes


def give_back() -> None:
    """Return freed memory to the system, if the C library can do so (glibc); otherwise it keeps most of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
