"""Preprocessing of input images inside the network: which families of chips can lower it."""

from tpusim.interfaces import Rules


class FusedFrames(Rules):
    """Preprocessing as a part of the network (--fuse-preprocess)."""

    def why_not(self) -> str | None:
        """Why the family's compiler cannot lower preprocessing; None if it can."""
        return None
