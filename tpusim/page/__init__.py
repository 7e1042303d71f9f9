"""`report.html`: the results of a run as one page that needs no internet connection.

Input: the object of `report.json`, and other data of the run (`Evidence`): histograms of the float tensors with the
calibrated ranges, layer groups, the timeline, the causes of `tpusim why`. Output: one file of HTML that contains its
style, script and pictures. Templates (Jinja2, everything escaped) define the look, `pictures` the coordinates of
shapes; nothing in this package computes a network.
"""

from tpusim.page.evidence import Cause, Diagnosis, Evidence, Histogram, Work, histograms, works
from tpusim.page.render import report_page, write_page

__all__ = [
    "Cause", "Diagnosis", "Evidence", "Histogram", "Work", "histograms", "report_page", "works", "write_page",
]  # fmt: skip
