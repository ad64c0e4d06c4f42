"""The catalogue of timm models, built with random weights.

Names are those of upstream's timm_models suite, including some that it no longer has. Upstream's
batch sizes (128, some 512) fill a 40 GB GPU; these are smaller, and --batch-size replaces them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from compileboard.collectors.bench.plan.models import NotAvailable, list_refs

if TYPE_CHECKING:
    from compileboard.collectors.bench.loaded import Loaded

# family: {name: batch size}
CATALOGUE = {
    "CNN": {
        "adv_inception_v3": 16,
        "cspdarknet53": 8,
        "densenet121": 16,
        "dm_nfnet_f0": 8,
        "hrnet_w18": 8,
        "inception_v3": 16,
        "nfnet_l0": 8,
        "repvgg_a2": 16,
        "res2net50_14w_8s": 8,
        "resnet18": 32,
    },
    "mobile CNN": {
        "fbnetc_100": 32,
        "ghostnet_100": 32,
        "lcnet_050": 64,
        "mobilenetv2_100": 32,
        "mobilenetv3_large_100": 32,
        "regnety_002": 32,
        "rexnet_100": 16,
        "tf_efficientnet_b0": 16,
    },
    "modern CNN": {"convnextv2_nano.fcmae_ft_in22k_in1k": 16, "poolformer_m36": 8},
    "MLP": {"mixer_b16_224": 8},
    "vision transformer": {
        "beit_base_patch16_224": 8,
        "deit_base_distilled_patch16_224": 8,
        "deit_tiny_patch16_224.fb_in1k": 32,
        "levit_128": 32,
        "mobilevit_s": 16,
        "swin_base_patch4_window7_224": 8,
        "visformer_small": 16,
        "vit_base_patch14_dinov2.lvd142m": 2,
        "vit_base_patch16_siglip_256": 8,
    },
}

MODELS = list_refs("timm", f"{__name__}:build", CATALOGUE)


def build(batch_size: int, name: str) -> Loaded:
    """Build a model in a child process, because the catalogue is read without torch and timm."""
    import timm
    from timm.data import resolve_model_data_config

    from compileboard.collectors.bench.loaded import load_image_model

    if not timm.is_model(name):
        raise NotAvailable(f"timm {timm.__version__} has no model {name}")
    with warnings.catch_warnings():
        # timm renames models and keeps the old names, with a warning.
        warnings.simplefilter("ignore")
        # Without dropout, as upstream: eager and compiled must compute the same.
        module = timm.create_model(name, pretrained=False, in_chans=3, drop_rate=0.0)
    return load_image_model(module, batch_size, resolve_model_data_config(module)["input_size"])
