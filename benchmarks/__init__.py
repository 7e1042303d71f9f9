"""Measurements, each named after the question it answers; `make bench` and `make accuracy` run them."""
