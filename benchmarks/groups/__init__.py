"""Layer groups of the classic networks: what each strategy gives on each chip (`make groups` writes docs/groups.md)."""
