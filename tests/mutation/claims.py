"""What the README says that the machine refuses, and the classes of faults that show it."""

ORDER = ("drop_dependency", "weaken_dependency", "wait_too_long", "swap_loads", "drop_message", "wrong_message",
         "barrier_without")  # fmt: skip
MISSING = ("drop_load", "drop_store", "drop_command", "stale_slice", "store_twice", "shrink_store", "shrink_load")
PLACE = ("shift_row", "shift_eu", "shift_bank", "shift_element", "wrong_lane", "wrong_layout", "store_offset",
         "reuse_live_buffer", "wrong_operand", "stale_weight", "kernel_over_input", "work_over_tensor",
         "moved_tensor")  # fmt: skip
SAID = ("tensor_name", "no_sources", "wrong_source", "no_tensor", "wrong_step", "no_window", "wrong_window_said",
        "wrong_scale", "wrong_shape", "wrong_macs", "wrong_group", "wrong_constants", "wrong_traffic")  # fmt: skip
FOREIGN = ("foreign_requant",)
WINDOW = ("load_offset", "other_window", "halo_off_by_one", "wrong_stride", "both_dtypes", "both_shapes",
          "swapped_operands")  # fmt: skip
CONTENT = ("swapped_constants",)
VALUES = ("wrong_relu", "missing_bias", "wrong_multiplier", "wrong_rshift", "wrong_zero_point", "wrong_rounding",
          "wrong_filter", "wrong_bias", "wrong_table", "wrong_pad", "wrong_pad_value", "wrong_signedness",
          "wrong_window", "wrong_kind", "wrong_count", "wrong_constant", "wrong_function")  # fmt: skip

CLAIMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("no race in any legal timing of any core, no deadlock", "races, order", ORDER),
    ("nothing missing, stale or twice", "uninitialised, ownership, tables", MISSING),
    ("no bytes of another tensor or constant, no tensor in a work area", "legality, ownership", PLACE),
    ("names and tables are what the commands do", "claims", SAID),
    ("no number format of another chip", "legality", FOREIGN),
    ("no other window of the right tensor, no padding in place of what is there", "legality, claims", WINDOW),
    ("the contents of constants, exchanged for all that read them: values alone", "`--check`", CONTENT),
    ("wrong numbers: values alone", "`--check`", VALUES),
)
"""(claim, parts that carry it, classes)."""
