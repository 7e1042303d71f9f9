"""All rules: the quirks, then those that no option of lowering switches off, stage by stage."""

from collections.abc import Iterable
from typing import Final

from tpusim.compat.quirks import Quirk
from tpusim.compat.rule import Rule

ERF_FOR_TANH: Final = (
    "a GELU by tanh is computed by the error function, as TPU-MLIR does (U-24); its values differ by up to 5e-4"
)
"""What the user is told where the values of a network change so."""

IMPORT: Final = (
    Rule(
        "U-16", "tensor_names", "import",
        "a tensor is called by its ONNX name, `_` and the type of the node that makes it (`y_Relu`)",
        "it has its ONNX name", "observed: model_transform.py", "import_onnx(onnx_names=True)",
    ),
    Rule(
        "U-17", "sums_are_chains", "import of Sum",
        "the Adds that a Sum becomes are not merged with equal Adds without a relu",
        "equal nodes are one", "numerics.md D20",
    ),
    Rule(
        "U-18", "duplicates_merge_once", "import, canonicalize",
        "equal nodes merge by names before the import; the two newest readers of a value once more after all patterns",
        "they merge until nothing changes", "interface.md 7.2",
    ),
    Rule(
        "U-19", "simplified_in_f32", "patterns of Conv, BatchNorm and Scale",
        "constants are folded step by step in f32, sums over hidden channels in their order",
        "they are folded in double and rounded once", "interface.md 7.3",
    ),
    Rule(
        "U-20", "permutes_merge_first", "patterns of Permute",
        "of two Permutes the second takes both orders before the import, and the first may stay",
        "a Permute merges if nothing else reads it", "interface.md 7.2",
    ),
    Rule(
        "U-113", "casts_to_bool_vanish", "import of Cast",
        "a cast to bool that only Where and Not read is left out: they take a number other than 0 as true, in INT8 the "
        "rounded number; if only a cast back to float reads it, both are one comparison with 0",
        "the cast compares with 0 before anything is rounded", "observed: model_transform.py",
    ),
    Rule(
        "U-114", "topk_along_the_last_axis", "import of TopK",
        "along another axis it stands between Permutes; the inner values have the name of the indices, and the inner "
        "indices that of the values (`i_TopK_transpose`)", "it runs along its axis", "observed: model_transform.py",
    ),
    Rule(
        "U-21", "numbers_become_operands", "patterns of Add, Sub, Mul and Div",
        "a constant of one value becomes a number of the op; a division by it is a product with its double reciprocal",
        "the division divides", "interface.md 7.3",
    ),
    Rule(
        "U-103", "factors_near_one", "patterns of Mul",
        "a constant factor within 2e-5 of 1 is left out", "only the factor 1 is", "observed: model_transform.py",
    ),
    Rule(
        "U-22", "mul_too_large", "patterns of MulConst",
        "a factor of 1e10 or more in magnitude becomes 1e4 with its sign",
        "the factor stays", "interface.md 7.3", "off unless --also mul_too_large",
    ),
    Rule(
        "U-23", "where_too_large", "patterns of Where",
        "a constant branch below -3e30 before a Softmax becomes -1e4",
        "the constant stays", "interface.md 7.3", "off unless --also where_too_large",
    ),
    Rule(
        "U-24", "forms_of_gelu", "patterns of GELU",
        "GELU is one op in some orders of its parts, and the tanh form becomes that of the error function: two "
        "sequences of ONNX nodes (U-97), (x/2)(1 + erf), the tanh form between two Reshapes, and on the 1684X family "
        "x * sigmoid(1.702 x)",
        "every order is one op, and the tanh form keeps its function", "interface.md 7.3", "--also gelu_tanh",
    ),
    Rule(
        "U-25", "attention_blocks", "patterns of Attention",
        "a block of attention is one op if its matrices are constant, its input and heads are not too large, and each "
        "intermediate result is used once",
        "every block of that meaning is one op", "numerics.md 11.5",
    ),
    Rule(
        "U-26", "flash_attention_blocks", "patterns of FAttention",
        "attention in 16 bits is one op with a factor, four keys or more, and heads of at most 128 elements",
        "every block of that meaning is one op", "numerics.md 11.6",
    ),
    Rule(
        "U-27", "patch_products", "patterns of Conv",
        "a Conv of few channels by large windows side by side becomes a product of patches, within limits by chip",
        "it stays a Conv", "interface.md 7.3",
    ),
    Rule(
        "U-28", "rows_become_biases", "patterns of MatMul",
        "a constant row that is added to a product becomes its bias, also after two computed matrices",
        "it becomes the bias where the product has one", "interface.md 7.3",
    ),
    Rule(
        "U-29", "heads_inside_products", "patterns of MatMul after lowering",
        "Permutes of heads become a part of the products, or move past elementwise ops to the next one",
        "a Permute stays", "observed: m_final.mlir",
    ),
    Rule(
        "U-30", "dilations_below_15", "patterns of Conv",
        "a dilation above 15 becomes its largest divisor below 15 and a larger kernel",
        "it becomes its largest divisor up to 15, which the commands allow", "interface.md 7.3",
    ),
    Rule(
        "U-31", "reductions_of_small_images", "patterns of Reduce",
        "two reductions become one for images below 65,536 elements only",
        "they become one for all images", "interface.md 7.3",
    ),
    Rule(
        "U-32", "scale_merges_by_chip", "patterns of Scale",
        "a Scale merges into a Conv after calibration, but for BM1684",
        "it merges on all chips, before calibration", "numerics.md 9.4",
    ),
    Rule(
        "U-33", "names_of_what_is_made", "patterns, lowering",
        "an op that replaces others, a cast or a Relu has a name made of its operand, its user and its type",
        "it has any unique name", "observed: names in m_tpu.mlir",
    ),
    Rule(
        "U-97", "sequences_of_nodes", "import",
        "ten sequences of ONNX nodes that follow each other become LayerNorm, PixelNorm, HardSigmoid, HardSwish, GELU "
        "or LogSoftmax, with constants of one axis at most and exact numbers",
        "every form of these functions is one op", "observed: model_transform.py",
    ),
    Rule(
        "U-98", "rows_of_three_axes", "patterns of MatMul",
        "a constant row that multiplies a linear layer is folded into it if the result has three axes",
        "it is folded for any number of axes", "observed: model_transform.py",
    ),
    Rule(
        "U-99", "neutral_weights", "import of LayerNorm, GroupNorm and InstanceNorm",
        "weights that are all 1 and biases that are all 0 are left out", "the op reads them",
        "observed: model_transform.py",
    ),
    Rule(
        "U-96", "text_of_modules", "modules as text",
        "attributes, enums, coefficients and locations have TPU-MLIR's names and order, and the first name of a "
        "location counts",
        "any text that reads back", "layer_group.md 14",
    ),
)  # fmt: skip

FLOATS: Final = (
    Rule(
        "U-34", "f32_sums_in_order", "kernels of Conv, Deconv, MatMul and Attention",
        "f32 products are added up in the order of oneDNN's kernels, by fused multiply-adds in blocks",
        "any order; pairwise sums lose less", "observed: model_runner.py", "--fast-f32",
    ),
    Rule(
        "U-35", "windows_in_order", "kernels of pools",
        "a window is summed element by element in its order", "any order", "numerics.md 9.6",
    ),
    Rule(
        "U-36", "products_before_sums", "kernels of Scale, norms and reductions",
        "products are rounded before they are added, but squares in a reduction, which are fused",
        "all are fused, or all are rounded", "observed: model_runner.py",
    ),
    Rule(
        "U-37", "lrn_of_onednn", "kernel of LRN",
        "the power is computed as oneDNN 3.1 does; a window of an even size is one channel narrower than ONNX says",
        "the power is rounded once, and the window is ONNX's", "observed: model_runner.py",
    ),
    Rule(
        "U-38", "exponentials_of_two_libraries", "kernels of Softmax",
        "the exponential of f32 is oneDNN's on vectors and the C library's elsewhere, to the last bit",
        "it is rounded once", "observed: model_runner.py",
    ),
    Rule(
        "U-39", "norms_step_by_step", "kernels of GroupNorm, InstanceNorm and LRN in 16 bits",
        "means, variances and neighbours' squares are rounded to the type after each step, in a stated order",
        "the result is rounded once", "observed: model_runner.py",
    ),
    Rule(
        "U-40", "interpolation_in_order", "kernel of Interp",
        "four weighted neighbours are added from the first on, with align_corners columns and then rows",
        "any order", "numerics.md 11.4",
    ),
    Rule(
        "U-41", "mish_without_guard", "kernel of MISH",
        "all steps are in f32, and large operands take no shortcut", "double, rounded once", "numerics.md 9.8",
    ),
    Rule(
        "U-42", "activations_round_twice", "kernels of activations in 16 bits",
        "the function is rounded to f32 and then to the type", "it is rounded once", "numerics.md D16",
    ),
    Rule(
        "U-43", "views_keep_types", "lowering of views",
        "a view is stored in its operand's type whatever mode it asks for, and a cast stands before the next op",
        "a view has the type of its mode", "numerics.md 3.5",
    ),
    Rule(
        "U-112", "branches_of_where_tiled", "chip rewrites of Where",
        "a computed branch of a smaller shape is repeated to the result's on the 1684X family, and has its range; as a "
        "condition is on all chips. TPU-MLIR stops if two repeat one tensor; here they share what they can",
        "Where broadcasts", "observed: model_deploy.py",
    ),
    Rule(
        "U-116", "ten_walks", "threshold propagation",
        "a step visits all ops from the last to the first, ten times at most: ranges that change each other for ever, "
        "and ranges that more than ten ops pass on, are left as they then are",
        "a step ends when nothing changes", "numerics.md DN-06",
    ),
    Rule(
        "U-117", "views_keep_ranges", "threshold propagation",
        "on the 1684X family a Squeeze or Unsqueeze gives no range of its result to its operand, as a Reshape does",
        "all views pass ranges back", "numerics.md 3.2",
    ),
    Rule(
        "U-44", "functions_without_tables", "lowering of activations",
        "some functions have no table of bytes and run in float in every mode",
        "every function of one byte has a table", "numerics.md 12.1",
    ),
    Rule(
        "U-45", "forms_of_chips", "lowering",
        "forms of ops differ by chip: which become tables, products, Pads, indices or other ops",
        "one form for all chips whose commands allow it", "numerics.md 9.0",
    ),
    Rule(
        "U-46", "recurrent_types", "lowering of LSTM, GRU and RNN",
        "a recurrent node runs in one float type by kind and chip, also in INT8", "its products are integers",
        "numerics.md 12.1",
    ),
    Rule(
        "U-106", "recurrent_nodes", "import of LSTM and GRU",
        "a node is one op; a node of one reverse direction, with layout 1, peepholes, clip, input_forget, other "
        "activations or a GRU without linear_before_reset gets an op that computes another function, and sequence "
        "lengths or computed weights are refused",
        "a node is one op if the op computes its function, any other is unrolled", "numerics.md 11.7",
    ),
    Rule(
        "U-47", "indices_are_i32", "lowering of Arg",
        "indices are 32-bit integers in every mode; as bytes they take one requant for two casts",
        "they have the type that the next op reads", "numerics.md 8.1",
    ),
    Rule(
        "U-48", "refused_by_chip", "lowering",
        "NMS, fused preprocessing and frames in YUV are refused on the chips for which TPU-MLIR stops",
        "the host computes them", "interface.md 3.3",
    ),
)  # fmt: skip

INTEGERS: Final = (
    Rule(
        "U-49", "factors_in_f32", "lowering: multipliers, propagation",
        "a factor that TPU-MLIR keeps in a `float` is narrowed to f32 before it is used",
        "factors stay in double", "numerics.md D9",
    ),
    Rule(
        "U-50", "multiplier_of_2_31", "multipliers of MatMul",
        "a common shift accepts a product of exactly 2^31, which is stored as -2^31",
        "the shift is one smaller", "numerics.md D29",
    ),
    Rule(
        "U-51", "zero_filter_shift", "right shifts of BM1684", "a filter of zeros has right shift 0",
        "any shift gives the same result", "numerics.md 5.4",
    ),
    Rule(
        "U-52", "small_multipliers_wrap", "multipliers of CV18xx",
        "a ratio above 127 has shift 0 and wraps in int8: 200 becomes -56",
        "the multiplier saturates, or the op runs in float", "numerics.md D26",
    ),
    Rule(
        "U-53", "bm1684_multipliers_saturate", "lowering of Add and Sub",
        "on BM1684 a ratio above 127 keeps shift 0 and multiplier 127", "the op runs in float", "numerics.md D12",
    ),
    Rule(
        "U-54", "entries_without_value", "lookup tables",
        "an entry that is infinite, no number or beyond 64 bits is the smallest byte, as x86 converts it",
        "infinity saturates", "numerics.md DN-19",
    ),
    Rule(
        "U-55", "extremes_compare_bytes", "lowering of Max and Min",
        "bytes are compared as they are where propagation could not make the scales equal",
        "operands are requantised first", "numerics.md 3.3",
    ),
    Rule(
        "U-56", "softmax_scale_in_f32", "kernel of INT8 Softmax",
        "scale, sum and quotient are f32", "double", "numerics.md D3",
    ),
    Rule(
        "U-57", "logsoftmax_range", "calibrated type of LogSoftmax",
        "its range is that of the quotient, (0, 1)", "the range of the logarithm", "numerics.md D27",
    ),
    Rule(
        "U-115", "weights_of_4_bits", "lowering, weight layout",
        "in W4INT8 filters and matrices have 4 bits, two in a byte: of a matrix along its columns, of a filter in the "
        "order of 8-bit weights; depthwise filters, volumes and transposed convolutions have 8",
        "all weights have 4 bits", "numerics.md 14",
    ),
    Rule(
        "U-101", "sums_without_effect", "lowering of AddConst",
        "an AddConst whose number is 0 in the result's steps, and whose operand has the same scale, is left out; its "
        "operand may be a float, whose cast to integers has the operand's range and the name of the sum",
        "the op stays, or the network's number is added before the values are quantised", "observed: m_tpu.mlir",
    ),
    Rule(
        "U-58", "table_ranges", "slope tables of CV18xx",
        "the range of a table is a constant by function; a product or difference with a number has +-15",
        "the range is the operand's", "numerics.md 10",
    ),
    Rule(
        "U-59", "half_to_even_of_f32", "rounding mode HALF_TO_EVEN", "a double is narrowed to f32 first",
        "the double is rounded", "numerics.md 4.1",
    ),
    Rule(
        "U-60", "f8_of_a_narrowed_quotient", "casts to F8", "the quotient is in double and narrowed once to the type",
        "f32, as for other casts", "numerics.md 8.3",
    ),
)  # fmt: skip

CALIBRATION: Final = (
    Rule(
        "U-61", "order_of_samples", "calibration", "files of a folder come in the order of a shuffle of seed 1684",
        "in the order of their names", "numerics.md 15.2",
    ),
    Rule(
        "U-62", "histograms_grow", "calibration: kl",
        "the number of new bins follows from top / bins, and old counts keep their indices though the width shrinks",
        "counts move with the width", "numerics.md 15.2",
    ),
    Rule(
        "U-63", "divergence_in_f32", "calibration: kl",
        "terms are in double and their sum is in f32, in the order of the bins", "double", "numerics.md D28",
    ),
    Rule(
        "U-64", "estimates_in_f32", "calibration: percentile9999, mse, aciq",
        "sums and means are f32; a level rises from op to op; a threshold that is no number is the least one",
        "double, one level for all", "numerics.md 15.2",
    ),
    Rule(
        "U-65", "tuning_with_float_weights", "calibration: tuning",
        "weights stay float though the options ask for rounded ones; thresholds of kl and max alone are tuned",
        "weights are rounded, and all methods are tuned", "numerics.md 15.3",
    ),
    Rule(
        "U-66", "text_of_tables", "calibration tables",
        "header with its spelling (`genetated time`), 7 decimals, names with blanks; numbers after the scales are "
        "not read",
        "any text that reads back exactly", "numerics.md 15.1",
    ),
    Rule(
        "U-67", "equalisation", "calibration: weight equalisation",
        "pairs in program order, each until its filters move by less than 1e-4, all in f32",
        "one pass, in double", "numerics.md 15.6", "off unless --also weight_equalization",
    ),
    Rule(
        "U-68", "smoothing", "calibration: smoothquant",
        "which tensors are divided by a factor per channel, and which matrices are multiplied",
        "any pair whose product stays", "numerics.md 15.6",
    ),
    Rule(
        "U-69", "bias_correction", "search of biases",
        "a Conv is corrected in program order by f32 means, and the correction must make it more similar than all "
        "before",
        "means in double, kept if results get better", "numerics.md 15.6",
    ),
    Rule(
        "U-70", "search_threshold", "search of the calibration method",
        "similarity is (1 + cosine) / 2 over 30 samples; of equal methods the first wins",
        "the squared error over all samples", "numerics.md 15.4",
    ),
    Rule(
        "U-71", "known_floats", "search of a quantisation table",
        "ops of transformers and of YOLO heads are in float before anything is measured", "measurements decide",
        "numerics.md 15.5", "off unless --patterns",
    ),
)  # fmt: skip

FRAMES: Final = (
    Rule(
        "U-72", "fused_preprocessing", "lowering with --fuse-preprocess",
        "formats, ops and attributes of the module's preprocessing; its tables are global layers before every group",
        "the network's first Conv takes scale and mean", "interface.md 3.3",
    ),
    Rule(
        "U-73", "images_to_the_last_bit", "image files", "decoding, resizing, defaults and order of the steps",
        "those of one image library", "interface.md 3.3",
    ),
    Rule(
        "U-74", "coefficients_of_yuv", "frames in YUV", "coefficients of four digits, rounded and clipped",
        "those of BT.601", "interface.md 3.3",
    ),
)  # fmt: skip

GROUPS: Final = (
    Rule(
        "U-75", "order_of_ops", "topo-sort",
        "ops with local forms and others take turns, chains are followed, inserted conversions come directly after "
        "their operand",
        "any order of the operands before their uses", "observed: m_final.mlir",
    ),
    Rule(
        "U-76", "no_group_of_one", "layer groups",
        "an element-wise op, cast, table, softmax, requant or pool in no group with others is a global layer",
        "it is a group if that is quicker", "layer_group.md 2",
    ),
    Rule(
        "U-77", "sections_from_the_first_guess", "layer groups",
        "counts of sections with fewer steps than the first guess are not tried", "all that fit are tried",
        "layer_group.md 10.2",
    ),
    Rule(
        "U-78", "search_for_one_core", "cost of groups",
        "transfers have the rates of a single core (24 bytes per ns on BM1688), and all pages of a run count",
        "the rates of the clock", "hardware.md DH-08",
    ),
    Rule(
        "U-79", "rows_merge_unasked", "timestep combine",
        "a load or store leaves a row that moves longer, and rows merge, without asking whether that is quicker",
        "a step is kept if it is quicker", "layer_group.md 13", "--layer-group best",
    ),
    Rule(
        "U-80", "tables_do_not_count", "timestep moves", "the cycles of a table are not counted when transfers move",
        "they count", "layer_group.md 8.4",
    ),
    Rule(
        "U-81", "slices_are_passed_on", "slicing",
        "what an op does with a slice that is larger than it needs: nothing, pass it on, or read a part",
        "it reads a part", "layer_group.md 7.3",
    ),
    Rule(
        "U-82", "local_forms", "layer groups",
        "which views, Slices, Permutes and Concats have a form in local memory, by rank and chip",
        "all that commands allow", "layer_group.md 2",
    ),
    Rule(
        "U-83", "loads_copy_images_to_lanes", "code generation of Conv",
        "an 8-bit image goes to the lanes of a merged kernel on its way from memory; floats after their load",
        "both on their way", "hardware.md 2.4",
    ),
    Rule(
        "U-84", "room_for_attention", "local memory of Attention",
        "the work area has the size that TPU-MLIR asks for, if that is more than is used", "what is used",
        "layer_group.md 9.3",
    ),
    Rule(
        "U-85", "half_bytes", "4-bit matrices", "rows of 4-bit elements begin at whole bytes, and bytes count",
        "elements are packed without gaps", "hardware.md 3.2",
    ),
    Rule(
        "U-86", "flops_of_norms", "FLOPs of RMSNorm", "five steps per element and four per row are counted",
        "what the formula has", "numerics.md 16",
    ),
    Rule(
        "U-111", "global_buffers", "memory",
        "Permute, Tile, Interp, GatherElements, ScatterElements, GridSampler, LSTM and GRU as global layers have room "
        "for intermediate values in global memory (tpu.Buffer) on the 1684X family",
        "no room: the machine here needs none", "hardware.md 3.3",
    ),
)  # fmt: skip

CLOCK: Final = (
    Rule(
        "U-87", "compute_of_the_profile", "clock",
        "a command takes the cycles of all commands that the library issues in its place, without start-up",
        "the table of the open profiler, with start-up", "hardware.md DH-07",
    ),
    Rule(
        "U-88", "transfers_of_the_profile", "clock",
        "short runs count as long ones, few pages have few memory channels, and a latency by direction",
        "bytes by rate", "hardware.md DH-08",
    ),
    Rule(
        "U-89", "tiles_of_the_library", "global layers",
        "which axes of a global layer are cut, and which share of local memory a tile fills",
        "the cheapest tiles", "layer_group.md DL-06",
    ),
    Rule(
        "U-90", "kernels_of_the_library", "clock",
        "interpolation, softmax, attention in 16 bits, f32 products and transpositions take the library's steps",
        "the operations of their formula", "hardware.md DH-07",
    ),
    Rule(
        "U-105", "products_of_few_bits", "global layers, clock",
        "products with weights of 4 and 8 bits have the library's tiles and take its steps",
        "the cheapest tiles", "hardware.md DH-07",
    ),
    Rule(
        "U-107", "recurrent_kernels", "clock",
        "LSTM and GRU take the commands of the library's kernel one after the other, gates pass through global memory, "
        "and transfers that turn 16-bit weights take no time",
        "transfers and computation overlap", "numerics.md 11.7",
    ),
    Rule(
        "U-110", "mirrors_by_place", "clock",
        "Reverse on BM1684X loads and stores every place of its axis by itself: single elements along the last axis",
        "whole planes", "hardware.md DH-07",
    ),
    Rule(
        "U-119", "sorting_takes_no_time", "clock",
        "TopK takes no cycles: a unit outside the profile sorts in global memory", "the time of its transfers",
        "hardware.md DH-07",
    ),
    Rule(
        "U-91", "steps_of_functions", "clock",
        "activations, norms and attention weights take as many vector steps as the library issues",
        "the length of a series", "hardware.md DH-07",
    ),
)  # fmt: skip

COMPARISON: Final = (
    Rule(
        "U-92", "verdicts", "comparison",
        "order of the tests, the spelling `NOT_SIMLIAR`, 1, 1 and infinity for equal tensors, and an int8 tensor that "
        "differs fails",
        "one measure per tensor", "interface.md 6.2",
    ),
    Rule(
        "U-93", "similarities_in_the_type", "comparison",
        "sums and products are f32 for floats and wrap for integers", "double", "interface.md 6.2",
    ),
    Rule(
        "U-94", "about_200_names", "comparison", "of more than 200 names about 200 are compared, and none passes",
        "all are compared, and none is no success", "interface.md 6.2", "off unless --upstream-sampling",
    ),
    Rule(
        "U-95", "default_tolerances", "comparison",
        "cosine and euclidean limits by mode, none for int4; numbers after the second are not read",
        "one limit, or an error", "interface.md 6.3",
    ),
)  # fmt: skip

AREAS: Final[dict[str, tuple[Rule, ...]]] = {
    "Quirks": tuple(quirk.rule for quirk in Quirk),
    "Import and patterns": IMPORT,
    "Floats and forms": FLOATS,
    "Integers": INTEGERS,
    "Calibration": CALIBRATION,
    "Image inputs": FRAMES,
    "Order, groups and local memory": GROUPS,
    "Clock": CLOCK,
    "Comparison": COMPARISON,
}
"""All rules by subject, in the order of the page."""


def _numbered(areas: Iterable[tuple[Rule, ...]]) -> dict[str, Rule]:
    return {rule.number: rule for area in areas for rule in area}


RULES: Final = _numbered(AREAS.values())
"""All rules by number."""
