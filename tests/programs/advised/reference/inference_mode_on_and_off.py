# advised first: inference-mode-variants
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model)
x, result = torch.ones(2, 4), []
for step in range(4):
    if step % 2:
        with torch.inference_mode():
            result.append(compiled(x).clone())
    else:
        result.append(compiled(x).detach())
