"""Forms: commands over whole tensors as commands over four axes, and the axes along which they may be cut."""

from tpusim.kernel_library.forms import axes, elementwise, images, matrices
from tpusim.kernel_library.forms.parts import Form, Part, Shape, seen
from tpusim.kernel_library.forms.table import form_of, forms

__all__ = [
    "Form",
    "Part",
    "Shape",
    "axes",
    "elementwise",
    "form_of",
    "forms",
    "images",
    "matrices",
    "seen",
]
