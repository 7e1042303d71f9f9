"""`report.html`: what a run found, as one page that needs no network.

Input: the object of `report.json`, and what the run has besides it (`Evidence`): histograms of the float tensors with
the ranges that were calibrated, layer groups, the timeline, the causes that `tpusim why` found. Output: one file of
HTML with its style, its script and its pictures inside. Templates (Jinja2, everything escaped) say how it looks,
`pictures` where the shapes of a picture stand; nothing here computes what a network does.
"""

from tpusim.page.evidence import Cause, Diagnosis, Evidence, Histogram, Work, histograms, works
from tpusim.page.render import report_page, write_page

__all__ = [
    "Cause", "Diagnosis", "Evidence", "Histogram", "Work", "histograms", "report_page", "works", "write_page",
]  # fmt: skip
