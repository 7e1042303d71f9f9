"""Numeric primitives: rounding, saturation, requantisation, multiplier derivation, scales, small floats."""
