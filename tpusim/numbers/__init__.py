"""What all parts must agree on about numbers: types at the border of a network, and how close two floats have to be."""
