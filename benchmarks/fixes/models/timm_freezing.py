"""timm's EfficientNet whose stem is frozen after the first epoch.

Right: requires_grad of the stem changes once: two graphs, of which neither is saved; no detach.
Place: model(images), torch.arange(4)
Names: requires_grad | frozen | stem
Never: Detach
"""

import timm
import torch


def set_stem(model, trainable):
    for parameter in (*model.conv_stem.parameters(), *model.bn1.parameters()):
        parameter.requires_grad_(trainable)


def run_epoch(model, optimizer, steps):
    for step in range(steps):
        images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.cross_entropy(model(images), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
net = timm.create_model("efficientnet_b0", pretrained=False, num_classes=4)
model = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
result = []
for epoch in range(3):
    set_stem(net, trainable=epoch < 1)
    result.append(run_epoch(model, optimizer, 2))
