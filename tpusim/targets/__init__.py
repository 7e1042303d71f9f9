"""Targets: one room per family of chips, with what the compiler and hardware of that family do differently.

The reference is what the ops answer themselves, that of the 1684X family. A room has a `target` (the `Target` of the
family, in `registry.TARGETS`) and files named after the op files whose questions they answer, with a `Model` for each
op and interface. What differs between chips of one family is a field of the chip's file instead. Only the registry
imports a room, on first use. No op file and no stage names a family.
"""
