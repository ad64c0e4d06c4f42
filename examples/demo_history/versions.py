"""The demo project's commits: their edits and benchmark flags.

Each edit replaces a text that its file has exactly once. The results of measuring are not stored
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent / "project"
ENCODER, RANKER = "encoder.py", "ranker.py"


@dataclass(frozen=True)
class Edit:
    """Replace a text of a file by another."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Version:
    """One commit: its subject, its edits, and the flags of the runs that are measured besides the
    plain one.
    """

    subject: str
    edits: tuple[Edit, ...] = ()
    also: tuple[tuple[str, ...], ...] = ()


NORM = "        return nn.functional.normalize(self.norm(x).mean(1), dim=-1)\n"
PRINTED = '        print(f"encoder: largest value {x.abs().max().item():.3f}")\n'
SCORED = "        return self.score(self.hidden(known).relu()).squeeze(-1)\n"
SAMPLED = "        known = known[torch.rand(len(known), device=known.device) < self.share]\n"
FUSED = '''
@torch.library.custom_op("search::mixed", mutates_args=())
def mixed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply and squash in one op of our own."""
    return (x @ weight).relu()


@mixed.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[0])


class Ranker(nn.Module):
'''

VERSIONS = (
    Version("models: a query encoder and a ranker"),
    Version(
        "encoder: say what the axes are",
        (
            Edit(
                ENCODER,
                "\nAXES = {",
                "\n# words of a query, heads, width of a head; b is the batch\nAXES = {",
            ),
        ),
    ),
    Version(
        "ranker: name the scales in the docstring",
        (
            Edit(
                RANKER,
                "Scale a feature.",
                "Scale a feature: log, sqrt or square.",
            ),
        ),
    ),
    Version(
        "encoder: call the halves of a layer's feed-forward expand and contract",
        (
            Edit(
                ENCODER,
                "self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)",
                (
                    "self.expand, self.contract = nn.Linear(width, 2 * width), nn.Linear(2 * "
                    "width, width)"
                ),
            ),
            Edit(
                ENCODER,
                "self.down(nn.functional.gelu(self.up(self.second(x))))",
                "self.contract(nn.functional.gelu(self.expand(self.second(x))))",
            ),
        ),
        also=(("--dynamic-shapes",),),
    ),
    Version(
        "ranker: describe the forward pass",
        (
            Edit(
                RANKER,
                "def forward(self, features, text):\n",
                (
                    'def forward(self, features, text):\n        """Return a score for each '
                    'candidate."""\n'
                ),
            ),
        ),
    ),
    Version(
        "encoder: print the largest value while we look for NaNs",
        (Edit(ENCODER, NORM, PRINTED + NORM),),
    ),
    Version(
        "ranker: say what the weights are",
        (
            Edit(
                RANKER,
                "\nSCALES = {",
                "\n# name, scale and weight of each; weights were tuned by hand\nSCALES = {",
            ),
        ),
    ),
    Version(
        "encoder: describe a layer",
        (
            Edit(
                ENCODER,
                "class Layer(nn.Module):\n",
                (
                    'class Layer(nn.Module):\n    """Attention and a feed-forward part, each added '
                    'to what came in."""\n\n'
                ),
            ),
        ),
    ),
    Version(
        "ranker: score a random half of the candidates, to explore",
        (
            Edit(
                RANKER,
                "        self.score = nn.Linear(width, 1)\n",
                "        self.score = nn.Linear(width, 1)\n        self.share = 0.5\n",
            ),
            Edit(RANKER, SCORED, SAMPLED + SCORED),
        ),
    ),
    Version("encoder: the NaNs are found, print nothing", (Edit(ENCODER, PRINTED, ""),)),
    Version(
        "encoder: describe attention",
        (
            Edit(
                ENCODER,
                "class Attention(nn.Module):\n",
                (
                    'class Attention(nn.Module):\n    """Every word looks at every other, with '
                    'four heads."""\n\n'
                ),
            ),
        ),
    ),
    Version(
        "ranker: the hidden layer as an op of our own",
        (
            Edit(RANKER, "\nclass Ranker(nn.Module):\n", FUSED),
            Edit(RANKER, "self.hidden(known).relu()", "mixed(known, self.hidden.weight.T)"),
        ),
    ),
    Version(
        "ranker: the op's output has as many columns as its weight",
        (Edit(RANKER, "weight.shape[0])", "weight.shape[1])"),),
    ),
    Version(
        "ranker: explore with two fifths of the candidates",
        (Edit(RANKER, "self.share = 0.5", "self.share = 0.4"),),
    ),
)

SUITE = "demo_history"


def read_project() -> dict[str, str]:
    """Return the files of the first version, by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PROJECT.glob("*.py"))}


def apply(version: Version, files: dict[str, str]) -> dict[str, str]:
    """Return the files after a version's edits.

    Raises ValueError if the text to replace does not occur exactly once.
    """
    files = dict(files)
    for edit in version.edits:
        count = files[edit.file].count(edit.old)
        if count != 1:
            raise ValueError(
                f"{version.subject!r}: expected {edit.old!r} once in {edit.file}; found it "
                f"{count} times"
            )
        files[edit.file] = files[edit.file].replace(edit.old, edit.new)
    return files
