"""The catalogue of transformers models with their configurations; `transformers_build` builds them.

Models that upstream's huggingface suite also has use its names and sequence lengths and, as
upstream does, the class's default configuration. Large language models have fewer and narrower
layers than trained ones. Batch sizes are below upstream's; --batch-size replaces them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from compileboard.collectors.bench.plan.models import ModelRef

BUILD = "compileboard.collectors.bench.suites.transformers_build:build"


@dataclass(frozen=True)
class TransformersRecipe:
    family: str
    inputs: str  # a kind of transformers_build.INPUTS
    batch_size: int
    length: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    class_name: str | None = None  # None: the model's name


_masked = partial(TransformersRecipe, "masked LM", "tokens")
_causal = partial(TransformersRecipe, "causal LM", "tokens")
_seq2seq = partial(TransformersRecipe, "encoder-decoder", "tokens")
_answers = partial(TransformersRecipe, "question answering", "question_answering")
_audio = partial(TransformersRecipe, "audio")
_image = partial(TransformersRecipe, "vision transformer", "image")


# Common to today's small decoders.
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
MAMBA: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}

RECIPES = {
    "BartForCausalLM": _causal(1, 1024),
    "BartForConditionalGeneration": _seq2seq(1, 1024),
    "BertForMaskedLM": _masked(8, 512),
    "BertForQuestionAnswering": _answers(8, 512),
    "BlenderbotSmallForCausalLM": _causal(16, 128),
    "DistilBertForMaskedLM": _masked(16, 128),
    "DistilBertForQuestionAnswering": _answers(16, 128),
    "DistillGPT2": _causal(4, 512, {"n_layer": 6}, "GPT2LMHeadModel"),
    "ElectraForCausalLM": _causal(8, 512),
    "GPT2ForSequenceClassification": TransformersRecipe(
        "classification", "sequence_classification", 2, 1024, {"pad_token_id": 0}
    ),
    "GoogleFnet": _masked(8, 512, class_name="FNetForMaskedLM"),
    "LayoutLMForMaskedLM": _masked(8, 512),
    "MT5ForConditionalGeneration": _seq2seq(4, 128),
    "MobileBertForMaskedLM": _masked(16, 128),
    "OPTForCausalLM": _causal(1, 2048),
    # Its positions start after the padding's: 514 for 512 tokens, as in every published checkpoint.
    "RobertaForCausalLM": _causal(8, 512, {"is_decoder": True, "max_position_embeddings": 514}),
    "T5ForConditionalGeneration": _seq2seq(2, 1024, {"decoder_start_token_id": 0}),
    "TrOCRForCausalLM": _causal(4, 256),
    "XLNetLMHeadModel": _causal(2, 512),
    "YituTechConvBert": _masked(8, 512, class_name="ConvBertForMaskedLM"),
    "Gemma2ForCausalLM": _causal(4, 512, {"head_dim": 64, **SMALL}),
    "LlamaForCausalLM": _causal(4, 512, SMALL),
    "MambaForCausalLM": _causal(4, 128, MAMBA),
    "MistralForCausalLM": _causal(4, 512, {"sliding_window": 256, **SMALL}),
    "MixtralForCausalLM": _causal(
        2, 512, {"num_local_experts": 4, "num_experts_per_tok": 2, **SMALL}
    ),
    "Qwen3ForCausalLM": _causal(4, 512, {"head_dim": 64, **SMALL}),
    "WhisperForConditionalGeneration": _audio("speech_to_text", 2, 64),
    "Wav2Vec2ForCTC": _audio("speech", 2, 10000, {"apply_spec_augment": False}),
    "CLIPModel": TransformersRecipe("vision and language", "image_and_text", 4, 77),
    "SwinForImageClassification": _image(8, config={"num_labels": 1000}),
    "ViTForImageClassification": _image(8, config={"num_labels": 1000}),
}

MODELS = tuple(
    ModelRef("transformers", name, BUILD, name, recipe.family, recipe.batch_size)
    for name, recipe in RECIPES.items()
)
