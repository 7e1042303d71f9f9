"""A space of five networks by five chips, three modes, three strategies and three batches, and how long it takes."""
