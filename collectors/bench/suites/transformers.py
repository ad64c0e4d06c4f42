"""The catalogue of transformers models with their configurations; `transformers_build` builds them.

Names and sequence lengths are those of upstream's huggingface suite where it has the model, with
the class's default configuration as upstream. Large language models have fewer and narrower layers
than trained ones. Batch sizes are below upstream's;
--batch-size replaces them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.bench.plan.models import ModelRef

BUILD = "compileboard.collectors.bench.suites.transformers_build:build"


@dataclass(frozen=True)
class TransformersRecipe:
    family: str
    inputs: str  # a kind of transformers_build.INPUTS
    batch_size: int
    length: int = 0
    class_name: str | None = None  # None: the model's name
    config: dict[str, Any] = field(default_factory=dict)


def _masked(batch_size: int, length: int = 512, **config: Any) -> TransformersRecipe:
    return TransformersRecipe("masked LM", "tokens", batch_size, length, config=config)


def _causal(
    batch_size: int, length: int = 512, class_name: str | None = None, **config: Any
) -> TransformersRecipe:
    return TransformersRecipe("causal LM", "tokens", batch_size, length, class_name, config)


def _seq2seq(batch_size: int, length: int, **config: Any) -> TransformersRecipe:
    return TransformersRecipe("encoder-decoder", "tokens", batch_size, length, config=config)


def _answers(batch_size: int, length: int = 512, **config: Any) -> TransformersRecipe:
    return TransformersRecipe(
        "question answering", "question_answering", batch_size, length, config=config
    )


def _classifier(batch_size: int, length: int, **config: Any) -> TransformersRecipe:
    return TransformersRecipe(
        "classification", "sequence_classification", batch_size, length, config=config
    )


# What the small decoders of today have in common.
SMALL: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}

RECIPES = {
    "BartForCausalLM": _causal(1, 1024),
    "BartForConditionalGeneration": _seq2seq(1, 1024),
    "BertForMaskedLM": _masked(8),
    "BertForQuestionAnswering": _answers(8),
    "BlenderbotSmallForCausalLM": _causal(16, 128),
    "DistilBertForMaskedLM": _masked(16, 128),
    "DistilBertForQuestionAnswering": _answers(16, 128),
    "DistillGPT2": _causal(4, 512, "GPT2LMHeadModel", n_layer=6),
    "ElectraForCausalLM": _causal(8),
    "GPT2ForSequenceClassification": _classifier(2, 1024, pad_token_id=0),
    "GoogleFnet": TransformersRecipe("masked LM", "tokens", 8, 512, "FNetForMaskedLM"),
    "LayoutLMForMaskedLM": _masked(8),
    "MT5ForConditionalGeneration": _seq2seq(4, 128),
    "MobileBertForMaskedLM": _masked(16, 128),
    "OPTForCausalLM": _causal(1, 2048),
    # Its positions start behind the padding's: 514 for 512 tokens, as in every published
    # checkpoint.
    "RobertaForCausalLM": _causal(8, is_decoder=True, max_position_embeddings=514),
    "T5ForConditionalGeneration": _seq2seq(2, 1024, decoder_start_token_id=0),
    "TrOCRForCausalLM": _causal(4, 256),
    "XLNetLMHeadModel": _causal(2),
    "YituTechConvBert": TransformersRecipe("masked LM", "tokens", 8, 512, "ConvBertForMaskedLM"),
    "Gemma2ForCausalLM": _causal(4, head_dim=64, **SMALL),
    "LlamaForCausalLM": _causal(4, **SMALL),
    "MambaForCausalLM": _causal(
        4,
        128,
        vocab_size=32000,
        hidden_size=256,
        num_hidden_layers=2,
        pad_token_id=0,
        tie_word_embeddings=False,
    ),
    "MistralForCausalLM": _causal(4, sliding_window=256, **SMALL),
    "MixtralForCausalLM": _causal(2, num_local_experts=4, num_experts_per_tok=2, **SMALL),
    "Qwen3ForCausalLM": _causal(4, head_dim=64, **SMALL),
    "WhisperForConditionalGeneration": TransformersRecipe("audio", "speech_to_text", 2, 64),
    "Wav2Vec2ForCTC": TransformersRecipe(
        "audio", "speech", 2, 10000, config={"apply_spec_augment": False}
    ),
    "CLIPModel": TransformersRecipe("vision and language", "image_and_text", 4, 77),
    "SwinForImageClassification": TransformersRecipe(
        "vision transformer", "image", 8, config={"num_labels": 1000}
    ),
    "ViTForImageClassification": TransformersRecipe(
        "vision transformer", "image", 8, config={"num_labels": 1000}
    ),
}

MODELS = tuple(
    ModelRef("transformers", name, BUILD, name, recipe.family, recipe.batch_size)
    for name, recipe in RECIPES.items()
)
