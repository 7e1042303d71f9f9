"""Measurements, each named after the question that it answers; `make bench` and `make accuracy` run them."""
