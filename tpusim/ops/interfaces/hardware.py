"""What a family's compiler requires of a chip."""

from typing import ClassVar

from tpusim.interfaces import Rules


class Requants(Rules):
    """The requants that the family's lowering makes, which the chip's hardware must have (numerics.md 5)."""

    PRODUCTS: ClassVar[str] = "multiplier"
    """`ChipSpec.requant`, of matrix products and convolutions."""
    OTHERS: ClassVar[str] = "best_fit"
    """`IntegerRules.scaling`, of other ops."""

    def why_not(self) -> str | None:
        """What the chip's file says instead; None if it fits."""
        stated = {
            "requant": (self.PRODUCTS, self.chip.requant),
            "integers.scaling": (self.OTHERS, self.chip.integers.scaling),
        }
        return next((f'{f} = "{w}" is required, got "{got}"' for f, (w, got) in stated.items() if got != w), None)
