"""Rewrite patterns over several ops; a pattern of one op is in the file of that op."""
