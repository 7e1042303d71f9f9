"""The constants of the clock and of the library's tiles that no source states: they were fitted to profiles.

A row says what the constant means and which recorded profiles fit it again (benchmarks/fit_constants.py), or which
profiles that would take. The value stands where it is used, and the text after it cites the row.
"""

from typing import Final, NamedTuple


class Fitted(NamedTuple):
    """One constant.

    number: by which the code cites it. name: of the variable, with the key of a table (`_UNEVEN_STEPS[2]`), or of a
    field of a chip's file (`quantize_steps`). means: in a line, with its unit. rounding: the used value is a multiple
    of it. chips: whose field it is; empty: a variable. profiles: what is recorded in tests/upstream and fits it; empty:
    nothing does. needs: the profiles that a fit would take, where none is recorded. differs: why the used value is not
    the value that the profiles give; empty: it is that value, rounded.
    """

    number: str
    name: str
    means: str
    rounding: float
    chips: tuple[str, ...] = ()
    profiles: str = ""
    needs: str = ""
    differs: str = ""


_INTERPOLATION: Final = (
    "the three were fitted at once to 12 other sizes, within a tenth; at once these ask for 71, 43 and 175, and the "
    "used ones are within 7 % of them"
)
_ROWS: Final = (
    Fitted(
        "F-01", "_F32_CHANNELS", "share of local memory that a tile of an f32 convolution fills: 1 in so many", 0.05,
        profiles="channels of the tiles of 20 convolutions, of which no share gives more than 9",
    ),
    Fitted(
        "F-02", "_TWO_AND_A_SUM", "share of local memory that a tile of a cast by planes fills: 1 in so many", 0.1,
        profiles="elements of the first tile of 10 casts on BM1688",
    ),
    Fitted(
        "F-03", "_BLOCK", "elements of what is shared out to all lanes, of which a tile has a multiple", 1,
        profiles="elements of the tiles of casts, tables and functions",
    ),
    Fitted(
        "F-04", "_REPEATED", "share of local memory that a tile of repeated elements fills: 1 in so many", 1,
        profiles="first loads of 12 Upsamples as global layers, of which no share gives more than 4",
    ),
    Fitted(
        "F-05", "_PLANES", "share of local memory that a tile of float planes fills: 1 in so many", 1,
        profiles="first loads of 12 global pools of floats",
        differs="5 gives 9 of them, 3 gives 8: three on BM1688 ask for 3, 3.5 and 5, so that no share is the rule",
    ),
    Fitted(
        "F-06", "_NEIGHBOURS", "neighbours that one lane has of a softmax of integers", 1,
        profiles="loads of 12 INT8 Softmaxes along channels, of which 3 are as wide as this and 9 fill the lanes",
    ),
    Fitted(
        "F-07", "_REDUCED", "neighbours that one lane has of any other function along an axis", 1,
        needs="transfers of reductions and norms along an inner axis, fewer rows than lanes, by ten sizes",
    ),
    Fitted(
        "F-08", "_INDEX_STEPS", "vector steps for each vector of the indices along the axis of an extreme", 1,
        profiles="TIU cycles of ArgMax",
    ),
    Fitted(
        "F-09", "_RUN_CYCLES", "cycles that the library counts for the load of one lane's columns of an f32 row", 0.1,
        profiles="loads of the right matrix of f32 products",
    ),
    Fitted(
        "F-10", "_MOST", "columns of the right f32 matrix that a lane has at most", 1,
        profiles="loads of the right matrix of f32 products",
    ),
    Fitted(
        "F-11", "_EVEN_STEPS", "vector steps of an interpolation by whole factors", 1,
        profiles="TIU cycles of interpolations by two and four",
    ),
    Fitted(
        "F-12", "_UNEVEN_STEPS[2]", "vector steps of any other interpolation, of 16 bits", 1,
        profiles="TIU cycles of interpolations by other factors",
        differs=_INTERPOLATION,
    ),
    Fitted(
        "F-13", "_UNEVEN_STEPS[4]", "vector steps of any other interpolation, of 32 bits", 1,
        profiles="TIU cycles of interpolations by other factors",
        differs=_INTERPOLATION,
    ),
    Fitted(
        "F-14", "_COORDINATES", "cycles that make the coordinates of such an interpolation", 10,
        profiles="TIU cycles of interpolations by other factors",
        differs=_INTERPOLATION,
    ),
    Fitted("F-15", "EXP_TERMS[4]", "terms of the exponential's series in f32", 1, profiles="TIU cycles of Softmax"),
    Fitted("F-16", "EXP_TERMS[2]", "terms of the exponential's series in 16 bits", 1, profiles="TIU cycles of Softmax"),
    Fitted("F-17", "DIVISION_STEPS", "vector steps of a division of floats", 1, profiles="TIU cycles of Softmax"),
    Fitted(
        "F-18", "_LOGARITHM[4]", "vector steps of the logarithm of a sum in f32", 1,
        profiles="TIU cycles of LogSoftmax",
    ),
    Fitted(
        "F-19", "_LOGARITHM[2]", "vector steps of the logarithm of a sum in 16 bits", 1,
        profiles="TIU cycles of LogSoftmax",
    ),
    Fitted(
        "F-20", "_ACTIVATIONS", "vector steps of each activation in f32", 1,
        profiles="TIU cycles of 19 activations on BM1684X",
        needs="LOG2, RSQRT, ARCSIN, ARCTAN, TGELU, MISH, LOG_SIGMOID, which no recorded network has",
    ),
    Fitted(
        "F-21", "_ROOT", "vector steps of a root in f32", 1,
        needs="a model of ReduceL2 whose squares and windows take the profile's steps: six networks show 36 to 76",
    ),
    Fitted(
        "F-22", "_SHIFTED_STEPS", "vector steps of a cast from f32 to integers with a zero point", 1,
        needs="INT8 casts with zero points inside a group on BM1688 by five sizes",
    ),
    Fitted(
        "F-23", "_OFFSET_STEPS", "vector steps of an integer mean with a zero point after its window", 1,
        needs="asymmetric AvgPool by five windows on both chips",
    ),
    Fitted(
        "F-24", "_ONES", "cycles that make the ones of a shifting PorD for one channel", 1,
        needs="first convolutions of three channels by five kernels on both chips",
    ),
    Fitted(
        "F-25", "_SCORE_BYTES", "bytes of a lane that a tile of FAttention takes for one score", 1,
        profiles="heads of a tile of FAttention by 11 sizes",
    ),
    Fitted(
        "F-26", "_HEAD_BYTES", "bytes of a lane that a tile of FAttention takes for one element of a head", 1,
        profiles="heads of a tile of FAttention by 11 sizes",
    ),
    Fitted(
        "F-27", "_CAST_PARTS", "parts of local memory one of which a tile of a cast loads and stores", 1,
        needs="transfers of casts without a tiled form by ten sizes: global kernels of CV186X and BM1690",
    ),
    Fitted(
        "F-28", "_PARTS", "parts of local memory one of which a tile of another kernel loads and stores", 1,
        needs="transfers of kernels without a tiled form by ten sizes",
    ),
    Fitted(
        "F-29", "quantize_steps", "vector steps of a cast from f32 to integers", 1, ("bm1684x", "bm1688"),
        profiles="TIU cycles of casts by planes and over the lanes",
    ),
    Fitted(
        "F-30", "strided_window_steps", "vector steps for one tap of a window whose columns are strided", 1,
        ("bm1684x", "bm1688"), profiles="TIU cycles of pools with steps of two",
    ),
    Fitted(
        "F-31", "ADDITION", "vector steps of a sum or a product of two tensors of floats", 1,
        profiles="TIU cycles of running sums and of products along an axis",
    ),
    Fitted(
        "F-32", "bandwidth.s2l", "bytes per ns of a load", 0.01, ("bm1684x",),
        profiles="loads of the filters of global convolutions",
    ),
    Fitted(
        "F-33", "bandwidth.l2s", "bytes per ns of a store", 0.1, ("bm1684x",),
        profiles="stores of the results of global convolutions",
    ),
    Fitted(
        "F-34", "bandwidth.s2s", "bytes per ns of a copy in global memory", 0.01, ("bm1684x",),
        profiles="copies of Permutes whose rows stay",
    ),
    Fitted(
        "F-35", "dma_latency_ns", "latency of a load in ns", 1, ("bm1688",),
        profiles="loads of the filters of global convolutions",
    ),
    Fitted(
        "F-36", "store_latency_ns", "latency of a store in ns", 1, ("bm1688",),
        profiles="stores of the results of global convolutions",
    ),
    Fitted(
        "F-37", "local_latency_ns", "latency of a copy in local memory in ns", 1, ("bm1688",),
        needs="copies in local memory by ten sizes: the recorded ones are of two cycles each",
    ),
    Fitted(
        "F-38", "dma_run_bytes", "bytes that a shorter run counts as", 1, ("bm1684x", "bm1688"),
        profiles="loads of f32 matrices in short runs",
    ),
    Fitted(
        "F-39", "dma_page_bytes", "bytes of a page, of which four lie in four memory channels", 1,
        ("bm1684x", "bm1688"), needs="loads of one run of 64 bytes to 32 KiB by twenty sizes",
    ),
    Fitted(
        "F-40", "matrix_gbs", "bytes per ns of a load that goes to all lanes in equal shares", 0.1, ("bm1684x",),
        profiles="loads of f32 matrices",
    ),
    Fitted(
        "F-41", "matrix_store_gbs", "bytes per ns of a store that comes from all lanes in equal shares", 0.1,
        ("bm1684x",), profiles="stores of f32 products",
        differs="the products that are recorded since ask for 44.1, within three parts in a thousand",
    ),
    Fitted(
        "F-42", "gather_gbs", "bytes per ns of rows that are gathered in global memory", 1, ("bm1684x", "bm1688"),
        profiles="gathers of rows of f32 by constant indices",
    ),
    Fitted(
        "F-43", "search_gbs", "bytes per ns that the search for groups counts with", 1, ("bm1688",),
        needs="the costs of groups that the tool logs, by ten networks",
    ),
    Fitted(
        "F-44", "calibration.factor", "measured time of published networks over the clock's", 0.01,
        ("bm1684x", "bm1688"), needs="times on silicon; benchmarks/how_far_is_the_clock.py fits it to published ones",
    ),
    Fitted(
        "F-45", "Lrn.made_of", "vector steps of an LRN besides its two series and one for each neighbour", 1,
        profiles="TIU cycles of 6 LRNs in f32",
        differs="these ask for 45 to 51, fewer for wider windows; it is 1 % of the cycles, which lane copies fill",
    ),
    Fitted(
        "F-46", "LayerNorm.made_of", "vector steps of a layer norm across lanes besides its series", 1,
        needs="profiles of layer norms along channels by ten sizes: the recorded ones lie inside a lane",
    ),
    Fitted(
        "F-47", "_LOG_TERMS", "terms of the logarithm's series, each a constant, by bytes of an element", 1,
        needs="constants of LogSoftmax by ten lengths: the recorded ones are of one",
    ),
    Fitted(
        "F-48", "_WEIGHT_STEPS[2]", "vector steps that make the weights of such an interpolation, of 16 bits", 1,
        profiles="TIU cycles of interpolations by other factors, of more channels than lanes",
    ),
    Fitted(
        "F-49", "_WEIGHT_STEPS[4]", "vector steps that make the weights of such an interpolation, of 32 bits", 1,
        profiles="TIU cycles of interpolations by other factors, of more channels than lanes",
    ),
    Fitted(
        "F-50", "_ROOT_STEPS", "vector steps of the reciprocal root of a norm", 1,
        needs="norms by ten sizes among the profiles that the script records: 28 layer norms, 24 instance norms and 12 "
        "PixelNorms inside a lane on BM1684X and BM1688 gave it exactly",
    ),
    Fitted(
        "F-51", "_PRECISE_BYTES", "bytes of a lane that a precise tile of FAttention takes for one score", 1,
        needs="attentions with high precision among the profiles that the script records: the queries of a tile of 13 "
        "sizes on BM1684X, 4 to 14 heads that share keys, allow 25.0 to 25.6 with F-26 = 10; other pairs fit too",
    ),
)  # fmt: skip

FITTED: Final = {row.number: row for row in _ROWS}
"""All fitted constants by number."""
