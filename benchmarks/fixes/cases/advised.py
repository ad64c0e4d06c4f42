"""First advice that takes a person, as a person followed it: case and fix → edits of the program.

Written after the advice was known, to its letter, and used for no other fix. A text instead of
edits says why the advice cannot be followed.
"""

from __future__ import annotations

Edits = tuple[tuple[str, str], ...]

ADVISED: dict[tuple[str, str], Edits | str] = {
    ("break_layerdrop", "if_where"): (
        (
            """\
            if self.training and dropout_probability < self.layerdrop:
                continue
            x = layer(x)
""",
            """\
            dropped = self.training and dropout_probability < self.layerdrop
            x = torch.where(dropped, x, layer(x))
""",
        ),
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
    clamped = torch.clamp(tensors, min=-clamp_value, max=clamp_value)
    return torch.where(tensors.isinf().any() or tensors.isnan().any(), clamped, tensors)
""",
        ),
    ),
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
    ("break_attention_seed", "device_query_in_caller"): (
        (
            """\
    def _init_attention_seed(self):
        self.attention_seed = int(torch.initial_seed() * 31 % sys.maxsize)
""",
            """\
    def _init_attention_seed(self, initial_seed):
        self.attention_seed = int(initial_seed * 31 % sys.maxsize)
""",
        ),
        (
            """\
    def forward(self, x):
        self._init_attention_seed()
""",
            """\
    def forward(self, x, initial_seed):
        self._init_attention_seed(initial_seed)
""",
        ),
        (
            """\
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
""",
            """\
    def forward(self, x, seeds):
        for block, seed in zip(self.blocks, seeds):
            x = block(x, seed)
""",
        ),
        (
            "outputs = [compiled(torch.ones(2, 8)) for _ in range(3)]\n",
            """\
outputs = []
for _ in range(3):
    first = torch.initial_seed()
    outputs.append(compiled(torch.ones(2, 8), [first, int(first * 31 % sys.maxsize)]))
""",
        ),
    ),
    ("break_backward_in_step", "parts_around"): (
        (
            "        self.criterion = nn.CrossEntropyLoss()\n",
            """\
        self.criterion = nn.CrossEntropyLoss()
        self.compute_loss = torch.compile(self._compute_loss, backend="aot_eager")
""",
        ),
        (
            "    def train_step(self, x, y):\n",
            """\
    def _compute_loss(self, x, y):
        return self.criterion(self.model(x), y)

    def train_step(self, x, y):
""",
        ),
        (
            "        loss = self.criterion(self.model(x), y)\n        loss.backward()",
            "        loss = self.compute_loss(x, y)\n        loss.backward()",
        ),
        (
            'step = torch.compile(trainer.train_step, backend="aot_eager")\n',
            "step = trainer.train_step\n",
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
    ("break_dead_codes", "slice_masked"): (
        (
            """\
        picked = samples[: expired.sum()]
        self.embed[expired] = picked
""",
            """\
        position = (expired.long().cumsum(0) - 1).clamp(min=0)
        self.embed.copy_(torch.where(expired[:, None], samples[position], self.embed))
""",
        ),
    ),
    ("break_draft_accuracy", "item_kept_a_tensor"): (
        (
            "        return correct.sum().item() / (loss_mask.sum().item() + 1e-6)\n",
            "        return correct.sum().detach() / (loss_mask.sum().detach() + 1e-6)\n",
        ),
    ),
    ("break_eos_stop", "if_where"): "the branch ends the loop: there is no value to choose",
    ("break_gradient_norm_hook", "item_kept_a_tensor"): (
        ("round(grad.norm().item(), 4)", "round(grad.norm().detach(), 4)"),
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
    ("break_message_hub_lock", "context_in_caller"): (
        (
            """\
        with self._lock:
            self.scalars.setdefault(name, []).append(value.detach())
""",
            """\
        self.scalars.setdefault(name, []).append(value.detach())
""",
        ),
        (
            "    loss = compiled(real, fake)\n",
            """\
    with MessageHub._lock:
        loss = compiled(real, fake)
""",
        ),
    ),
    ("break_metric_log", "item_kept_a_tensor"): (
        (".update(value.item(), n)", ".update(value.detach(), n)"),
    ),
    ("break_mixup", "numpy_as_torch"): (
        (
            "np.random.beta(self.alpha, self.alpha)",
            "torch.distributions.Beta(self.alpha, self.alpha).sample()",
        ),
    ),
    ("break_moe_tolist", "tolist_captured"): (
        (
            "from torch.nn import functional as F\n",
            """\
from torch.nn import functional as F

torch._dynamo.config.capture_scalar_outputs = True
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
    ("break_numpy_candidates", "if_where"): "the branch ends the loop: there is no value to choose",
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
    ("break_padding_mask", "if_where"): (
        (
            """\
        if attention_mask is not None and (attention_mask == 0.0).any():
            return attention_mask
        return None
""",
            """\
        if attention_mask is None:
            return None
        return torch.where((attention_mask == 0.0).any(), attention_mask, None)
""",
        ),
    ),
    ("break_policy_loss_item", "item_kept_a_tensor"): (
        ("action_loss.item()", "action_loss.detach()"),
        ("value_loss.item()", "value_loss.detach()"),
    ),
    ("break_progress_bar", "call_in_caller"): (
        ("        bar = Bar(self.steps)\n", ""),
        ("            bar.update()\n", ""),
        (
            """\
        result.append(sampler(torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))))
""",
            """\
        bar = Bar(5)
        result.append(sampler(torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))))
        for _ in range(5):
            bar.update()
""",
        ),
    ),
    ("break_quantize_dropout", "if_where"): (
        (
            """\
            if self.training and number > drop_from:
                indices.append(torch.full(x.shape[:-1], -1))
                continue
            quantized, index = layer(residual)
            residual = residual - quantized.detach()
            out = out + quantized
            indices.append(index)
""",
            """\
            dropped = self.training and number > drop_from
            quantized, index = layer(residual)
            residual = torch.where(dropped, residual, residual - quantized.detach())
            out = torch.where(dropped, out, out + quantized)
            indices.append(torch.where(dropped, torch.full(x.shape[:-1], -1), index))
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
    ("break_quantizer_function", "item_branch"): (
        (
            """\
        scale = x.abs().max().item() / levels
        if scale == 0:
            return x
        ctx.save_for_backward(x.abs() <= levels * scale)
        return torch.round(x / scale) * scale
""",
            """\
        scale = x.abs().max() / levels
        ctx.save_for_backward(x.abs() <= levels * scale)
        return torch.where(scale == 0, x, torch.round(x / scale) * scale)
""",
        ),
    ),
    ("break_request_timer", "clock_in_caller"): (
        (
            """\
    def mark(self, name):
        self.events.append((name, datetime.now()))
""",
            """\
    def mark(self, name, now):
        self.events.append((name, now))
""",
        ),
        (
            """\
    def forward(self, x):
        self.trace.mark(f"block{self.number}")
""",
            """\
    def forward(self, x, now):
        self.trace.mark(f"block{self.number}", now)
""",
        ),
        (
            """\
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        self.trace.mark("end")
""",
            """\
    def forward(self, x, now):
        for block in self.blocks:
            x = block(x, now)
        self.trace.mark("end", now)
""",
        ),
        (
            "            outputs.append(model(request))\n",
            "            outputs.append(model(request, datetime.now()))\n",
        ),
    ),
    ("break_rope_index", "tolist_captured"): (
        (
            "VISION_START, IMAGE = 3, 4\n",
            """\
torch._dynamo.config.capture_scalar_outputs = True
VISION_START, IMAGE = 3, 4
""",
        ),
    ),
    ("recompile_learning_rate", "extension_in_caller"): (
        ('torch.compile(self._optimizer_step, backend="eager")', "self._optimizer_step"),
    ),
    (
        "break_skip_bad_update",
        "if_where",
    ): "the branch counts and returns: there is no value to choose",
    ("break_soft_nms", "while_in_caller"): (
        (
            "def soft_nms(",
            """\
@torch.compile(backend="eager")
def lower_others(boxes, scores, sigma):
    best = scores.argmax()
    decay = torch.exp(-box_iou(boxes[best], boxes).square() / sigma)
    scores = scores * decay
    scores[best] = -1.0
    return best, scores


def soft_nms(""",
        ),
        (
            """\
        best = scores.argmax().item()
        kept.append(best)
        decay = torch.exp(-box_iou(boxes[best], boxes).square() / sigma)
        scores = scores * decay
        scores[best] = -1.0
    return torch""",
            """\
        best, scores = lower_others(boxes, scores, sigma)
        kept.append(best.item())
    return torch""",
        ),
        ('@torch.compile(backend="eager")\ndef postprocess', "def postprocess"),
    ),
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
    ("recompile_residual_inputs", "list-length"): (
        (
            """\
        hidden, emb, *residuals = inputs
        hidden = torch.relu(self.fc(hidden) + emb)
        return (hidden, emb, *residuals, hidden)
""",
            """\
        hidden = torch.relu(self.fc(inputs[0]) + inputs[1])
        return torch.cat([hidden[None], inputs[1:], hidden[None]])
""",
        ),
        (
            """\
        hidden, emb, *residuals, last = inputs
        hidden = torch.relu(self.fc(torch.cat([hidden, last], -1)) + emb)
        return (hidden, emb, *residuals)
""",
            """\
        hidden = torch.relu(self.fc(torch.cat([inputs[0], inputs[-1]], -1)) + inputs[1])
        return torch.cat([hidden[None], inputs[1:-1]])
""",
        ),
        ("        state = (x, emb)\n", "        state = torch.stack([x, emb])\n"),
        (
            "            state = layer(state)\n",
            """\
            torch._dynamo.mark_dynamic(state, 0)
            state = layer(state)
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
    ("break_skip_bad_update", "if_in_caller"): (
        (
            'self.apply = torch.compile(self.apply_gradients, backend="eager")',
            """\
self.clip = torch.compile(self._clip, backend="eager")
        self.update = torch.compile(self._update, backend="eager")""",
        ),
        (
            "    def apply_gradients(self):\n        norm = nn.utils.clip_grad_norm_(self.model"
            ".parameters(), max_norm=1.0)\n",
            """\
    def _clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)

    def _update(self):
        self.optimizer.step()

    def apply(self):
        norm = self.clip()
""",
        ),
        (
            "            return norm\n        self.optimizer.step()\n",
            "            return norm\n        self.update()\n",
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
}
