"""The built-in suite: small, real architectures that need only torch."""

from __future__ import annotations

from compileboard.collectors.bench.plan.models import ModelRef

SUITE = "builtin"


def _model(
    module: str, name: str, family: str, batch_size: int, *, trains: bool = True
) -> ModelRef:
    return ModelRef(
        SUITE,
        name,
        f"{__name__}.{module}:{name}",
        family=family,
        batch_size=batch_size,
        trains=trains,
    )


MODELS: tuple[ModelRef, ...] = (
    _model("tabular", "mlp", "MLP", 64),
    _model("classifiers", "cnn_batchnorm", "CNN", 8),
    _model("classifiers", "resnet", "CNN", 8),
    _model("classifiers", "depthwise_cnn", "mobile CNN", 8),
    _model("classifiers", "vision_transformer", "vision transformer", 4),
    _model("pictures", "unet", "segmentation", 4),
    _model("pictures", "detector", "detection", 4),
    _model("sequences", "transformer_encoder", "language", 4),
    _model("sequences", "transformer_decoder", "language", 4),
    # It writes into the cache that the next call reads, so there is nothing to differentiate.
    _model("sequences", "cached_decoder", "language", 8, trains=False),
    _model("sequences", "encoder_decoder", "language", 4),
    _model("sequences", "mixture_of_experts", "language", 4),
    _model("sequences", "lstm", "language", 8),
    _model("sequences", "waveform_cnn", "audio", 4),
    _model("tabular", "recommendation", "recommendation", 256),
    _model("tabular", "graph_network", "graph", 16),
    _model("pictures", "diffusion", "diffusion", 4),
    _model("pictures", "variational_autoencoder", "autoencoder", 16),
)
