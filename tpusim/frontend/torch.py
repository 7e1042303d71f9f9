"""`import_torch`: a torch.nn.Module through PyTorch's ONNX exporter; needs the extra `torch`."""

# torch is optional and not installed when types are checked:
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import io
from typing import TYPE_CHECKING, Any, Literal

from tpusim.errors import ConfigError, ImportModelError, first_line
from tpusim.ir.module import Model

if TYPE_CHECKING:
    from onnx import ModelProto

Exporter = Literal["dynamo", "torchscript"]


def import_torch(module: Any, example: Any, *, exporter: Exporter = "dynamo") -> Model:
    """Export a module in evaluation mode with an example of its inputs, and import the ONNX model.

    example: a tensor, or a tuple of them; the network gets their shapes. The module's mode is restored afterwards.
    Raises ConfigError if torch is missing or the argument is no module, ImportModelError with the exporter's reason.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"load: a path or a torch.nn.Module is required, got {type(module).__name__}")
    if example is None:
        raise ConfigError("load: a torch.nn.Module needs an example of its inputs: tpusim.load(module, example)")
    arguments = example if isinstance(example, tuple) else (example,)
    training = bool(module.training)
    module.eval()
    try:
        with torch.no_grad():
            proto = _exported(torch, module, arguments, exporter)
    except Exception as error:  # noqa: BLE001  the exporter or the module's code may raise anything
        other = "torchscript" if exporter == "dynamo" else "dynamo"
        raise ImportModelError(
            f"{type(module).__name__}: PyTorch's exporter '{exporter}' cannot take it ({first_line(error)}); "
            f"try exporter='{other}', or export parts of it"
        ) from error
    finally:
        module.train(training)
    from tpusim.frontend.onnx import import_onnx

    return import_onnx(proto, name=type(module).__name__)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            "load: PyTorch modules need torch, which is not installed: pip install 'tpusim[torch]'; or export the "
            "module to ONNX elsewhere and load the file"
        ) from error
    return torch


def _exported(torch: Any, module: Any, arguments: tuple[Any, ...], exporter: Exporter) -> "ModelProto":
    if exporter == "dynamo":
        return torch.onnx.export(module, arguments, dynamo=True).model_proto
    file = io.BytesIO()
    torch.onnx.export(module, arguments, file, dynamo=False)
    import onnx

    return onnx.load_model_from_string(file.getvalue())
