"""Marks of the parts of a Resize that TPU-MLIR computes in another way than the node states (U-109).

Front ends set the attribute `tpusim.part_of` on the ops of such a node, such as "Interp cubic half_pixel _Resize:Y".
"""

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
"""Coordinates of a linear interpolation."""
PARTS = "Interp"
"""The kind of these nodes in the marks of their parts (`tpusim.part_of`)."""
NEAREST, SAME = "nearest", "nearest_same"
"""Mode nearest: TPU-MLIR copies other elements than the node states, or the same ones."""
UNSTATED = "asymmetric_unstated"
"""The coordinates of nodes that cannot state any, which are asymmetric in ONNX."""
TAKEN = {UNSTATED: "half_pixel", "tf_half_pixel_for_nn": "half_pixel", "asymmetric": "half_pixel"}
"""Coordinates of a node -> those that TPU-MLIR takes for them in a linear interpolation."""


def nearest_coordinates(coordinates: str) -> str:
    """The coordinates that TPU-MLIR takes in mode nearest."""
    return coordinates if coordinates == "asymmetric" else TAKEN.get(coordinates, coordinates)


def interpolated(mode: str, coordinates: str, ending: str) -> str:
    """The mark of a node of these modes along h and w; "" for another node.

    ending: that of the op's name after the name of the framework's tensor.
    """
    known = mode in ("linear", "cubic", NEAREST, SAME) and coordinates in (*COORDINATES, *TAKEN)
    return f"{PARTS} {mode} {coordinates} {ending}" if known else ""
