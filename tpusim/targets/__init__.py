"""Targets: one room per family of chips, with what the compiler and the hardware of that family do differently.

The reference is the 1684X family: its answers are those of the ops. A room has a file `target` (the `Target` of the
family, in `registry.TARGETS`) and files named after the op files whose questions they answer, with a `Model` for each
op and interface. `shared` has the models that BM1684 and CV18xx have in common. Differences between chips of one family
are fields of the chips' files instead. Only the registry imports a room, on first use. No op file and no stage names a
family.
"""
