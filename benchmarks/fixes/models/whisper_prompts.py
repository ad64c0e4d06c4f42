"""Whisper that decodes prompts of varying lengths for the same audio.

Right: Mark dimension 1 of decoder_input_ids dynamic before the user's call.
Place: self.model(
Names: decoder_input_ids
"""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
    max_source_positions=20, max_target_positions=32, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip


class Transcriber:
    def __init__(self, model):
        self.model = torch.compile(model.eval(), backend="eager")

    @torch.no_grad()
    def score(self, features, prompt):
        logits = self.model(
            input_features=features, decoder_input_ids=prompt, use_cache=False
        ).logits
        return logits[:, -1].log_softmax(-1)


torch.manual_seed(0)
transcriber = Transcriber(WhisperForConditionalGeneration(config))
features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
result = [transcriber.score(features, torch.ones(2, n, dtype=torch.long)) for n in (3, 5, 8, 6)]
