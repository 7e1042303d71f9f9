"""A comparison as JUnit XML for CI systems: one suite with a test case for each tensor."""

from xml.etree import ElementTree

from tpusim.verify.compare import Comparison, TensorResult


def to_junit(found: Comparison, *, name: str) -> str:
    """The text of the file. Tensors that the target lacks or that were left out are skipped cases.

    name: the name of the suite.
    """
    skipped = [
        *((tensor, "the target does not have it") for tensor in found.only_in_reference),
        *((tensor, "excepted") for tensor in found.excepted),
        *((tensor, "not sampled") for tensor in found.not_sampled),
    ]
    counts = {"tests": found.compared + len(skipped), "failures": len(found.failures), "skipped": len(skipped)}
    suite = ElementTree.Element("testsuite", {"name": name, "errors": "0", **{k: str(v) for k, v in counts.items()}})
    for tensor in found.tensors:
        _add_compared(suite, tensor, found, name)
    for tensor, why in skipped:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=tensor)
        ElementTree.SubElement(case, "skipped", message=why)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_compared(suite: ElementTree.Element, tensor: TensorResult, found: Comparison, name: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=name, name=tensor.name)
    measured = f"cosine {tensor.cosine:.6f}, euclidean {tensor.euclidean:.6f}, sqnr {tensor.sqnr_db:.2f} dB"
    if not tensor.passed:
        message = f"{tensor.verdict}: {tensor.note or measured}; required {found.tolerance}"
        ElementTree.SubElement(case, "failure", type=tensor.verdict, message=message)
    ElementTree.SubElement(case, "system-out").text = f"{tensor.verdict} {measured}"
