"""The built-in suite: small, real architectures that need only torch."""

from __future__ import annotations

from compileboard.collectors.bench.plan.models import ModelRef

SUITE = "builtin"


def _model(
    name: str, builder: str, family: str, batch_size: int, *, trains: bool = True
) -> ModelRef:
    return ModelRef(
        SUITE, name, f"{__name__}.{builder}", family=family, batch_size=batch_size, trains=trains
    )


MODELS: tuple[ModelRef, ...] = (
    _model("mlp", "mlp:build", "MLP", 64),
    _model("cnn_batchnorm", "convolution:build_cnn", "CNN", 8),
    _model("resnet", "convolution:build_resnet", "CNN", 8),
    _model("depthwise_cnn", "depthwise_cnn:build", "mobile CNN", 8),
    _model("vision_transformer", "vision_transformer:build", "vision transformer", 4),
    _model("unet", "unet:build", "segmentation", 4),
    _model("detector", "detector:build", "detection", 4),
    _model("transformer_encoder", "transformer_encoder:build", "language", 4),
    _model("transformer_decoder", "transformer_decoder:build", "language", 4),
    # It writes into the cache that the next call reads: there is nothing to differentiate.
    _model("cached_decoder", "transformer_decoder:build_cached", "language", 8, trains=False),
    _model("encoder_decoder", "encoder_decoder:build", "language", 4),
    _model("mixture_of_experts", "mixture_of_experts:build", "language", 4),
    _model("lstm", "lstm:build", "language", 8),
    _model("waveform_cnn", "waveform_cnn:build", "audio", 4),
    _model("recommendation", "recommendation:build", "recommendation", 256),
    _model("graph_network", "graph_network:build", "graph", 16),
    _model("diffusion", "diffusion:build", "diffusion", 4),
    _model("variational_autoencoder", "variational_autoencoder:build", "autoencoder", 16),
)
