def known_floats(model): return {}
