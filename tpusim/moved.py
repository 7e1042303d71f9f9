"""Modules of the Python page that were moved: the former name imports, with a warning, for one minor version."""

import sys
import warnings
from importlib import import_module

REMOVED_IN = "0.4"
"""The version in which the former names go."""


def forward(former: str, place: str, *parts: str) -> None:
    """Import `place` under the name `former`, and each submodule of `parts` likewise.

    Called at the import of the former module; warns (DeprecationWarning) with the new name.
    """
    text = f"{former} is now {place}; the former name is removed in version {REMOVED_IN}"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    for part in parts:
        sys.modules[f"{former}.{part}"] = import_module(f"{place}.{part}")
    sys.modules[former] = import_module(place)
