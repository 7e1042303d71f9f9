"""When Python collects garbage in tests; importing this module puts it into effect."""

import gc

AFTER = 400_000, 2, 1_000
"""The thresholds of `tpusim.cli.entry`, but nothing is collected from the oldest objects.

Those are what tests keep in caches: millions that no collection frees, and that each one walks for 0.2 to 1 second.
"""
gc.set_threshold(*AFTER)
