"""What several test files build their cases with; no test module imports another one."""
