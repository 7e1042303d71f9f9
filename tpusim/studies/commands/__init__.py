"""The command lines of the studies, one file each."""
