"""First advice that takes a person, as a person followed it: case and fix → edits of the program.

Written after the advice was known, to its letter, and used for no other fix. A text instead of
edits says why the advice cannot be followed.
"""

from __future__ import annotations

Edits = tuple[tuple[str, str], ...]

ADVISED: dict[tuple[str, str], Edits | str] = {
    ("recompile_loop_bounds", "int-that-the-code-needs"): (
        (
            '        self.accumulate = torch.compile(self._accumulate, backend="eager")\n',
            "        self.accumulate = self._accumulate\n"
            '        self.add = torch.compile(self._add, backend="eager")\n',
        ),
        (
            "    def _accumulate(self",
            """\
    def _add(self, total, time, start):
        return total + torch.exp(-self.decay * (time - start))

    def _accumulate(self""",
        ),
        (
            "            total = total + torch.exp(-self.decay * (times[i] - times[start]))\n",
            "            total = self.add(total, times[i], times[start])\n",
        ),
    ),
    ("break_class_in_function", "class_outside"): (
        (
            """\
        class Output:
            def __init__(self, prev_sample, pred_original):
                self.prev_sample = prev_sample
                self.pred_original = pred_original

""",
            "",
        ),
        (
            "class EulerScheduler:\n",
            """\
class Output:
    def __init__(self, prev_sample, pred_original):
        self.prev_sample = prev_sample
        self.pred_original = pred_original


class EulerScheduler:
""",
        ),
    ),
    ("break_lazy_positions", "parameter_outside"): (
        (
            "        self.positions = None\n",
            "        self.positions = nn.Parameter(torch.zeros(1, 4, size) + 0.02)\n",
        ),
        (
            """\
        if self.positions is None:
            self.positions = nn.Parameter(torch.zeros(1, x.shape[1], x.shape[2]) + 0.02)
""",
            "",
        ),
    ),
    ("break_max_time", "time_in_caller"): (
        (
            """\
    def __call__(self, ids):
        return time.time() - self.initial_timestamp > self.max_time
""",
            """\
    def __call__(self, ids):
        return False
""",
        ),
        (
            """\
    result = [generate(torch.tensor([[start, 2, 3]]), criteria) for start in (1, 5)]
""",
            """\
    result = []
    for start in (1, 5):
        began = time.time()
        result.append(generate(torch.tensor([[start, 2, 3]]), criteria))
        if time.time() - began > 3600.0:
            break
""",
        ),
    ),
    ("break_noise_generator", "generator_in_caller"): (
        ("    def forward(self, x, t, seed):\n", "    def forward(self, x, t, noise):\n"),
        (
            """\
        generator = torch.Generator(device=x.device).manual_seed(seed)
        noise = torch.randn(x.shape, generator=generator)
""",
            "",
        ),
        (
            "    loss = compiled(torch.ones(4, 6), torch.tensor([0, 3, 6, 9]), 42)\n",
            """\
    x = torch.ones(4, 6)
    generator = torch.Generator(device=x.device).manual_seed(42)
    noise = torch.randn(x.shape, generator=generator)
    loss = compiled(x, torch.tensor([0, 3, 6, 9]), noise)
""",
        ),
    ),
    ("break_packed_gru", "rnn_outside"): (
        (
            "    def forward(self, ids, lengths):\n        state = self.encode(ids, lengths)\n",
            """\
    def forward(self, ids, lengths):
        return self.classify(self.encode(ids, lengths))

    def classify(self, state):
""",
        ),
        (
            'compiled = torch.compile(model, backend="aot_eager")\n',
            """\
compiled = model
model.classify = torch.compile(model.classify, backend="aot_eager")
""",
        ),
    ),
    ("recompile_growing_cache", "parts_around"): (
        (
            "        self.qkv = nn.Linear(size, 3 * size)\n",
            '        self.qkv = torch.compile(nn.Linear(size, 3 * size), backend="eager")\n',
        ),
        ('model = torch.compile(Model(), backend="eager")\n', "model = Model()\n"),
    ),
    ("recompile_learning_rate", "optimizer-rate"): (("lr=0.01", "lr=torch.tensor(0.01)"),),
    ("recompile_norm_contexts", "requires-grad"): (
        (
            "        return rmsnorm_without_weight(hidden)\n",
            "        return rmsnorm_without_weight(hidden.detach())\n",
        ),
    ),
    ("break_timer_context", "time_in_caller"): (
        (
            """\
    def forward(self, x):
        with timed("encoder"):
            h = self.encoder(x)
        with timed("decoder"):
            return self.decoder(h)
""",
            """\
        self.encode = torch.compile(lambda x: self.encoder(x), backend="eager")
        self.decode = torch.compile(lambda h: self.decoder(h), backend="eager")

    def forward(self, x):
        with timed("encoder"):
            h = self.encode(x)
        with timed("decoder"):
            return self.decode(h)
""",
        ),
        ('pipeline = torch.compile(Pipeline(), backend="eager")\n', "pipeline = Pipeline()\n"),
    ),
    ("break_token_stream", "item_in_caller"): (
        (
            "        return next_token.item(), next_token, state\n",
            "        return next_token, state\n",
        ),
        (
            """\
            number, token, state = self.decode_one(token, state)
            yield number
""",
            """\
            token, state = self.decode_one(token, state)
            yield token.item()
""",
        ),
    ),
    ("break_upsample_info", "logger_in_caller"): (
        (
            """\
            logger.info("Forward upsample size to force interpolation output size.")
""",
            "",
        ),
        (
            "        result.append(unet(torch.ones(1, 4, 10, 10)).mean())\n",
            """\
        sample = torch.ones(1, 4, 10, 10)
        if any(size % 4 for size in sample.shape[-2:]):
            logger.info("Forward upsample size to force interpolation output size.")
        result.append(unet(sample).mean())
""",
        ),
    ),
    ("recompile_position_strides", "stride"): (
        (
            '"position_ids": position_ids[:, -count:]}',
            '"position_ids": position_ids[:, -count:].contiguous()}',
        ),
    ),
    ("recompile_requires_grad", "requires-grad"): (
        ("*weight_statistics(p, 2.0)", "*weight_statistics(p.detach(), 2.0)"),
    ),
    ("recompile_residual_inputs", "list-that-is-read"): (
        (
            """\
    def forward(self, inputs):
        hidden, emb, *residuals = inputs
        hidden = torch.relu(self.fc(hidden) + emb)
        return (hidden, emb, *residuals, hidden)
""",
            """\
    def forward(self, hidden, emb):
        return torch.relu(self.fc(hidden) + emb)
""",
        ),
        (
            """\
    def forward(self, inputs):
        hidden, emb, *residuals, last = inputs
        hidden = torch.relu(self.fc(torch.cat([hidden, last], -1)) + emb)
        return (hidden, emb, *residuals)
""",
            """\
    def forward(self, hidden, emb, last):
        return torch.relu(self.fc(torch.cat([hidden, last], -1)) + emb)
""",
        ),
        ("        state = (x, emb)\n", "        hidden, residuals = x, []\n"),
        (
            "            state = layer(state)\n        return state[0]\n",
            """\
            if isinstance(layer, DownLayer):
                hidden = layer(hidden, emb)
                residuals.append(hidden)
            else:
                hidden = layer(hidden, emb, residuals.pop())
        return hidden
""",
        ),
    ),
    ("recompile_mixed_precision", "dtype"): (
        (
            "            memory = self.layer(frame, memory)\n",
            "            memory = self.layer(frame.float(), memory.float()).to(frame.dtype)\n",
        ),
    ),
    ("recompile_inference_warmup", "inference-tensor"): (
        ("        with torch.inference_mode():\n", "        with torch.no_grad():\n"),
    ),
    ("recompile_optional_values", "none"): (
        (
            "if number % 2 else None\n",
            "if number % 2 else torch.ones_like(keys)\n",
        ),
    ),
    ("recompile_prompt_text", "text-in-caller"): (
        (
            """\
    def _predict(self, text):
        ids = torch.tensor([ord(c) % 128 for c in text.lower()])
""",
            """\
    def _predict(self, ids):
""",
        ),
        (
            "    result = [predictor.predict(text) for text in texts]\n",
            """\
    result = []
    for text in texts:
        ids = torch.tensor([ord(c) % 128 for c in text.lower()])
        torch._dynamo.mark_dynamic(ids, 0)
        result.append(predictor.predict(ids))
""",
        ),
    ),
    ("recompile_regional_blocks", "attribute-value"): (
        (
            """\
    def compile_repeated_blocks(self):
        for block in self.blocks:
            block.compile(backend="eager")

""",
            "",
        ),
        ("model.compile_repeated_blocks()\n", 'model.compile(backend="eager")\n'),
    ),
    ("recompile_weight_cache", "cache-in-caller"): (
        (
            """\
    def forward(self, x):
        return nn.functional.linear(x, dequantise(self.packed, self.scale), self.bias)
""",
            """\
    def forward(self, x, weight):
        return nn.functional.linear(x, weight, self.bias)
""",
        ),
        (
            """\
    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))
""",
            """\
    def forward(self, x, weights):
        return self.fc2(torch.relu(self.fc1(x, weights[0])), weights[1])
""",
        ),
        (
            """\
model = torch.compile(Model(torch.Generator().manual_seed(0)), backend="eager")
with torch.no_grad():
    result = [model(torch.full((2, 6), float(n))) for n in range(3)]
""",
            """\
net = Model(torch.Generator().manual_seed(0))
compiled = torch.compile(net, backend="eager")


def model(x):
    weights = [dequantise(layer.packed, layer.scale) for layer in (net.fc1, net.fc2)]
    return compiled(x, weights)


with torch.no_grad():
    result = [model(torch.full((2, 6), float(n))) for n in range(3)]
""",
        ),
    ),
    ("recompile_feature_keys", "attribute-value"): (
        (
            """\
        for encoder in self.encoders:
            encoder.compile(backend="eager")
""",
            "",
        ),
        (
            "model = Recommender(keys).eval()\n",
            'model = Recommender(keys).eval()\nmodel.compile(backend="eager")\n',
        ),
    ),
    ("recompile_recurrent_state", "none"): (
        (
            "        state, actions = None, []\n",
            "        state, actions = torch.zeros(2, 6), []\n",
        ),
    ),
    ("recompile_dropout_schedule", "attribute-value"): (
        "each epoch has its own p, which would not be what was asked for if it stayed the same"
    ),
    ("break_attention_warning", "warning_in_caller"): (
        (
            """\
    if mask is not None:
        warnings.warn("a dense mask was passed: the fused attention is not used", stacklevel=2)
    scores""",
            "    scores",
        ),
        (
            "out = compiled(torch",
            """\
warnings.warn("a dense mask was passed: the fused attention is not used", stacklevel=1)
out = compiled(torch""",
        ),
    ),
    ("break_draft_accuracy", "item_in_caller"): (
        (
            "        return correct.sum().item() / (loss_mask.sum().item() + 1e-6)\n",
            "        return correct.sum(), loss_mask.sum()\n",
        ),
        (
            "[round(float(a), 4) for a in accuracies]",
            "[round(c.item() / (m.item() + 1e-6), 4) for c, m in accuracies]",
        ),
    ),
    ("break_eos_stop", "loop_body"): (
        (
            """\
@torch.compile(backend="eager")
def generate""",
            """\
@torch.compile(backend="eager")
def extend(model, ids, finished):
    next_token = model(ids).argmax(-1)
    next_token = torch.where(finished, EOS, next_token)
    ids = torch.cat([ids, next_token.unsqueeze(-1)], dim=-1)
    return ids, finished | (next_token == EOS)


def generate""",
        ),
        (
            """\
        next_token = model(ids).argmax(-1)
        next_token = torch.where(finished, EOS, next_token)
        ids = torch.cat([ids, next_token.unsqueeze(-1)], dim=-1)
        finished = finished | (next_token == EOS)
        if""",
            "        ids, finished = extend(model, ids, finished)\n        if",
        ),
    ),
    ("break_layerdrop", "loop_body"): (
        (
            "class Decoder",
            """\
@torch.compile(backend="aot_eager")
def run_layer(layer, x):
    return layer(x)


class Decoder""",
        ),
        ("            x = layer(x)\n", "            x = run_layer(layer, x)\n"),
        ('compiled = torch.compile(model, backend="aot_eager")\n', "compiled = model\n"),
    ),
    ("break_message_hub_lock", "block_in_caller"): (
        (
            """\
        hub = MessageHub.get_instance()
        hub.update_scalar("loss_real", loss_real)
        hub.update_scalar("loss_fake", loss_fake)
        return loss_real + loss_fake
""",
            "        return loss_real + loss_fake, loss_real, loss_fake\n",
        ),
        (
            "    loss = compiled(real, fake)\n",
            """\
    loss, loss_real, loss_fake = compiled(real, fake)
    hub = MessageHub.get_instance()
    hub.update_scalar("loss_real", loss_real)
    hub.update_scalar("loss_fake", loss_fake)
""",
        ),
    ),
    ("break_shift_negative", "if_where"): (
        (
            "        if y < 0:\n            x = x + 0.55\n",
            "        x = torch.where(y < 0, x + 0.55, x)\n",
        ),
    ),
    ("break_mixup", "random_in_caller"): (
        (
            """\
    def __call__(self, x, target):
        lam = np.random.beta(self.alpha, self.alpha)
""",
            """\
    def draw(self):
        return torch.tensor(np.random.beta(self.alpha, self.alpha))

    def __call__(self, x, target, lam):
""",
        ),
        ("_compute_loss(self, x, target):", "_compute_loss(self, x, target, lam):"),
        ("self.mixup(x, target)", "self.mixup(x, target, lam)"),
        ("self.compute_loss(x, target)", "self.compute_loss(x, target, self.mixup.draw())"),
    ),
    ("break_policy_loss_item", "item_in_caller"): (
        (
            '{"action_loss": action_loss.item(), "value_loss": value_loss.item()}',
            '{"action_loss": action_loss, "value_loss": value_loss}',
        ),
        (
            '{"loss": loss.item(), **loss_dict}',
            '{"loss": loss.item(), **{name: part.item() for name, part in loss_dict.items()}}',
        ),
    ),
    ("break_quantize_dropout", "loop_body"): (
        (
            "class ResidualVQ",
            """\
@torch.compile(backend="eager")
def quantize(layer, residual, out):
    quantized, index = layer(residual)
    return residual - quantized.detach(), out + quantized, index


class ResidualVQ""",
        ),
        (
            """\
            quantized, index = layer(residual)
            residual = residual - quantized.detach()
            out = out + quantized
""",
            "            residual, out, index = quantize(layer, residual, out)\n",
        ),
        ('compiled = torch.compile(model, backend="eager")\n', "compiled = model\n"),
    ),
    ("break_rope_index", "loop_left_out"): (
        (
            """\
        h, w = get_rope_index(input_ids, image_grid)
        return""",
            """\
        h, w = get_rope_index(input_ids, image_grid)
        return self.compute(input_ids, h, w)

    @torch.compile(backend="eager")
    def compute(self, input_ids, h, w):
        return""",
        ),
        (
            'torch.compile(VisionLanguage().eval(), backend="eager")',
            "VisionLanguage().eval()",
        ),
    ),
    ("break_soft_nms", "loop_left_out"): (
        (
            '@torch.compile(backend="eager")\ndef postprocess(logits, boxes):\n'
            "    scores, classes = logits.softmax(-1).max(-1)\n",
            """\
@torch.compile(backend="eager")
def classify(logits):
    return logits.softmax(-1).max(-1)


@torch.compile(backend="eager")
def gather(results, boxes, scores, classes):
    keep = torch.cat(results)
    return boxes[keep], scores[keep], classes[keep]


def postprocess(logits, boxes):
    scores, classes = classify(logits)
""",
        ),
        (
            "        results.append(index[kept])\n    keep = torch.cat(results)\n"
            "    return boxes[keep], scores[keep], classes[keep]\n",
            "        results.append(index[kept])\n"
            "    return gather(results, boxes, scores, classes)\n",
        ),
    ),
    ("break_statistics_print", "print_in_caller"): (
        (
            """\
        print(f"{self.name}: mean {y.mean():.3f}, std {y.std():.3f}")
        return x + y
""",
            "        return x + y, (self.name, y.mean(), y.std())\n",
        ),
        (
            """\
        for block in self.blocks:
            x = block(x)
        return self.head(x)
""",
            """\
        lines = []
        for block in self.blocks:
            x, line = block(x)
            lines.append(line)
        return self.head(x), lines
""",
        ),
        (
            "    out = compiled(x)\n",
            """\
    out, lines = compiled(x)
    for name, mean, std in lines:
        print(f"{name}: mean {mean:.3f}, std {std:.3f}")
""",
        ),
    ),
    ("break_token_range", "check_in_caller"): (
        (
            '        assert (ids < self.vocab).all(), f"token {ids.max().item()} is not below '
            '{self.vocab}"\n',
            "",
        ),
        (
            """\
        try:
            with""",
            """\
        try:
            ids, vocab = request, self.model.vocab
            assert (ids < vocab).all(), f"token {ids.max().item()} is not below {vocab}"
            with""",
        ),
    ),
    ("break_atom_forces", "requires_grad_of_input"): (
        (
            """\
        if not positions.requires_grad:
            positions.requires_grad_(True)
""",
            "",
        ),
        (
            "            output = self.model({",
            """\
            if not positions.requires_grad:
                positions.requires_grad_(True)
            output = self.model({""",
        ),
    ),
    ("break_blank_filter", "loop_left_out"): (
        (
            """\
    def forward(self, tokens, audio):
        logits = self.head(torch.tanh(self.embed(tokens).mean(1) + audio))
        for logit_filter in self.filters:
            logit_filter.apply(logits, tokens)
        best""",
            """\
    def forward(self, tokens, audio):
        logits = self.compute(tokens, audio)
        for logit_filter in self.filters:
            logit_filter.apply(logits, tokens)
        return self.choose(tokens, logits)

    @torch.compile(backend="eager")
    def compute(self, tokens, audio):
        return self.head(torch.tanh(self.embed(tokens).mean(1) + audio))

    @torch.compile(backend="eager")
    def choose(self, tokens, logits):
        best""",
        ),
        ('torch.compile(decoder, backend="eager")', "decoder"),
    ),
    ("break_fast_adapt", "grad_func"): (
        ("import copy\n\nimport torch", "import copy\n\nimport torch\nimport torch.func"),
        (
            """\
            loss = F.mse_loss(net(x_support), y_support)
            grads = torch.autograd.grad(loss, list(net.parameters()))
""",
            """\

            def loss_of(weights):
                return F.mse_loss(torch.func.functional_call(net, weights, x_support), y_support)

            weights = dict(net.named_parameters())
            grads = torch.func.grad(loss_of)(weights).values()
""",
        ),
    ),
    ("break_zero_std", "check_in_caller"): (
        (
            """\
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {dtype}")
""",
            "",
        ),
        (
            "        with torch.no_grad():\n            result",
            """\
        if (torch.as_tensor(std, dtype=dtype) == 0).any():
            raise ValueError(f"std evaluated to zero after conversion to {dtype}")
        with torch.no_grad():
            result""",
        ),
    ),
    ("break_backward_in_step", "step_outside"): (
        (
            """\
        loss = self.criterion(self.model(x), y)
        loss.backward()
""",
            """\
        loss = self.compute_loss(x, y)
        loss.backward()
""",
        ),
        (
            "    def train_step(self",
            """\
    @torch.compile(backend="aot_eager")
    def compute_loss(self, x, y):
        return self.criterion(self.model(x), y)

    def train_step(self""",
        ),
        (
            'step = torch.compile(trainer.train_step, backend="aot_eager")\n',
            "step = trainer.train_step\n",
        ),
    ),
    ("break_attention_seed", "rest_compiled"): (
        (
            """\
        self._init_attention_seed()
        return x + self.dropout(self.linear(x))
""",
            """\
        self._init_attention_seed()
        return self.compute(x)

    @torch.compile(backend="eager")
    def compute(self, x):
        return x + self.dropout(self.linear(x))
""",
        ),
        ('compiled = torch.compile(model, backend="eager")\n', "compiled = model\n"),
    ),
    ("break_metric_log", "rest_compiled"): (
        (
            "    def training_step(self, batch):\n",
            """\
    @torch.compile(backend="aot_eager")
    def compute(self, batch):
""",
        ),
        (
            """\
        self.log("train_loss", loss, len(x))
        self.log("code_norm", z.norm(), len(x))
        return loss
""",
            """\
        return loss, z.norm(), len(x)

    def training_step(self, batch):
        loss, norm, count = self.compute(batch)
        self.log("train_loss", loss, count)
        self.log("code_norm", norm, count)
        return loss
""",
        ),
        (
            'training_step = torch.compile(module.training_step, backend="aot_eager")\n',
            "training_step = module.training_step\n",
        ),
    ),
    ("break_request_timer", "rest_compiled"): (
        (
            """\
        return x + torch.tanh(self.fc(x))
""",
            """\
        return self.compute(x)

    @torch.compile(backend="eager")
    def compute(self, x):
        return x + torch.tanh(self.fc(x))
""",
        ),
        ('torch.compile(model, backend="eager")', "model"),
    ),
    ("break_overflow_clamp", "if_where"): (
        (
            """\
    if tensors.isinf().any() or tensors.isnan().any():
        clamp_value = torch.finfo(tensors.dtype).max - offset
        tensors = torch.clamp(tensors, min=-clamp_value, max=clamp_value)
    return tensors
""",
            """\
    clamp_value = torch.finfo(tensors.dtype).max - offset
    return torch.where(
        tensors.isinf().any() | tensors.isnan().any(),
        torch.clamp(tensors, min=-clamp_value, max=clamp_value),
        tensors,
    )
""",
        ),
    ),
    ("break_padding_mask", "if_in_caller"): (
        (
            "    def _update_causal_mask(self, attention_mask):\n"
            "        if attention_mask is not None and (attention_mask == 0.0).any():\n",
            "    def _update_causal_mask(self, attention_mask, is_padded):\n"
            "        if is_padded:\n",
        ),
        (
            "    def forward(self, input_ids, attention_mask=None):\n"
            "        mask = self._update_causal_mask(attention_mask)\n",
            "    def forward(self, input_ids, attention_mask=None, is_padded=False):\n"
            "        mask = self._update_causal_mask(attention_mask, is_padded)\n",
        ),
        (
            "    logits = step(ids, attention_mask=mask)\n",
            "    is_padded = mask is not None and bool((mask == 0.0).any())\n"
            "    logits = step(ids, attention_mask=mask, is_padded=is_padded)\n",
        ),
    ),
    ("break_progress_bar", "loop_call"): (
        ("        self.net = nn.Sequential(", "        net = nn.Sequential("),
        (
            "nn.Linear(12, size))\n",
            'nn.Linear(12, size))\n        self.net = torch.compile(net, backend="eager")\n',
        ),
        ('torch.compile(Sampler(), backend="eager")', "Sampler()"),
    ),
    ("break_usage_counter", "item_in_caller"): (
        (
            """\
        for code, count in enumerate(counts.tolist()):
            self.usage[code] = self.usage.get(code, 0) + count
        return self.embed(codes)
""",
            """\
        return self.embed(codes), counts

    def report(self, counts):
        for code, count in enumerate(counts.tolist()):
            self.usage[code] = self.usage.get(code, 0) + count
""",
        ),
        (
            """\
    outputs = [
        compiled(torch.randn(7, 3, generator=torch.Generator().manual_seed(step)))
        for step in range(3)
    ]
""",
            """\
    outputs = []
    for step in range(3):
        out, counts = compiled(torch.randn(7, 3, generator=torch.Generator().manual_seed(step)))
        model.report(counts)
        outputs.append(out)
""",
        ),
    ),
    ("break_loss_type", "logger_in_caller"): (
        (
            """\
        if self.loss_type not in LOSSES:
            warning_once(f"`loss_type={self.loss_type}` is not known: causal is used")
""",
            "",
        ),
        (
            "    loss = compiled(",
            """\
    if model.loss_type not in LOSSES:
        warning_once(f"`loss_type={model.loss_type}` is not known: causal is used")
    loss = compiled(""",
        ),
    ),
    ("break_pad_token_warning", "logger_in_caller"): (
        (
            """\
            logger.warning(f"Setting `pad_token_id` to `eos_token_id`:{self.eos}")
""",
            "",
        ),
        (
            """\
    result = [compiled(torch.tensor([[1, 3, 2], [4, 5, 6]]) + step) for step in range(2)]
""",
            """\
    result = []
    for step in range(2):
        logger.warning(f"Setting `pad_token_id` to `eos_token_id`:{compiled.eos}")
        result.append(compiled(torch.tensor([[1, 3, 2], [4, 5, 6]]) + step))
""",
        ),
    ),
    ("break_random_noise", "item_branch"): (
        (
            """\
        if torch.rand(1).item() > 0.5:
            x = x + 0.1
""",
            "        x = torch.where(torch.rand(1) > 0.5, x + 0.1, x)\n",
        ),
    ),
    ("break_timestep_lookup", "lookup_in_caller"): (
        ("        sigma = self.sigmas[timestep.item()]\n", ""),
        ("def forward(self, sample, timestep):", "def forward(self, sample, sigma):"),
        ("model(sample, timestep)", "model(sample, model.sigmas[timestep.item()])"),
    ),
    ("break_numpy_candidates", "loop_body"): (
        ("def narrow(", '@torch.compile(backend="eager")\ndef narrow('),
        (
            '@torch.compile(backend="eager")\ndef solve(',
            """\
@torch.compile(backend="eager")
def leave(keep, candidates):
    return np.where(keep, candidates, np.float64(1e6))


def solve(""",
        ),
        (
            "        candidates = np.where(keep, candidates, np.float64(1e6))\n",
            "        candidates = leave(keep, candidates)\n",
        ),
    ),
}
