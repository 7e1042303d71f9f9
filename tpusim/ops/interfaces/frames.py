"""What images of the user ask of a family of chips."""

from tpusim.interfaces import Rules


class FusedFrames(Rules):
    """Preprocessing as a part of the network (--fuse-preprocess)."""

    def why_not(self) -> str | None:
        """Why the family's compiler has no lowering of it; None if it has one."""
        return None
