"""When Python collects garbage in tests; importing this module puts it into effect."""

import gc

AFTER = 400_000, 2, 1_000
"""The thresholds of `tpusim.cli.entry`, but the oldest objects are not walked: what tests keep in caches.

At the end of all tests in one process one collection of them takes 5 seconds.
"""
gc.set_threshold(*AFTER)
