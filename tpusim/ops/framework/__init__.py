"""What op files share and what is no op: the base classes, contexts, views, shared answers and the module builder."""
