"""The catalogue of torchvision models, built with random weights.

Detection models are left out, because with random weights it is chance whether their outputs are
empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compileboard.collectors.bench.plan.models import NotAvailable, list_refs

if TYPE_CHECKING:
    from compileboard.collectors.bench.loaded import Loaded

# family: {name: batch size}
CATALOGUE = {
    "CNN": {
        "alexnet": 32,
        "densenet121": 16,
        "resnet18": 16,
        "resnet50": 16,
        "resnext50_32x4d": 8,
        "squeezenet1_1": 16,
        "vgg16": 8,
        "wide_resnet50_2": 8,
    },
    "mobile CNN": {
        "efficientnet_b0": 16,
        "efficientnet_v2_s": 8,
        "mnasnet1_0": 16,
        "mobilenet_v2": 16,
        "mobilenet_v3_large": 16,
        "mobilenet_v3_small": 32,
        "regnet_y_400mf": 16,
        "shufflenet_v2_x1_0": 32,
    },
    "modern CNN": {"convnext_tiny": 8},
    "vision transformer": {"maxvit_t": 4, "swin_t": 8, "swin_v2_t": 8, "vit_b_16": 8},
    "segmentation": {
        "deeplabv3_mobilenet_v3_large": 4,
        "fcn_resnet50": 2,
        "lraspp_mobilenet_v3_large": 8,
    },
    "video": {"mc3_18": 2, "r3d_18": 2},
}

MODELS = list_refs("torchvision", f"{__name__}:build", CATALOGUE)
IMAGE, VIDEO = (3, 224, 224), (3, 8, 112, 112)


def build(batch_size: int, name: str) -> Loaded:
    """Build a model in a child process, because the catalogue is read without torch."""
    import torchvision

    from compileboard.collectors.bench.loaded import load_image_model

    if name not in torchvision.models.list_models():
        raise NotAvailable(f"torchvision {torchvision.__version__} has no model {name}")
    words: dict[str, Any] = {"weights": None}
    if name.startswith(("deeplabv3", "fcn", "lraspp")):
        words["weights_backbone"] = None  # by default the pretrained backbone is downloaded
    module = torchvision.models.get_model(name, **words)
    return load_image_model(module, batch_size, VIDEO if name in CATALOGUE["video"] else IMAGE)
