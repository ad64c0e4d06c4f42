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
}
