"""Studies of a network, each over several compilations or runs of it, and their commands.

`prospect` asks before a run, `diagnosis` afterwards; `search` and `explore` compile many variants; `export` and `bench`
compare with other programs. `commands` has their command lines.
"""
