"""Layer groups of the classic networks by each strategy on each chip (`make groups` writes docs/groups.md)."""
