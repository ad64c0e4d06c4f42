"""What is known of single models, and upstream's rule for tolerances."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.plan.model_facts import (
    FILE,
    Fact,
    ModelFacts,
    facts_for,
    tolerance_for,
)
from compileboard.collectors.bench.plan.models import ModelRef

NOTHING = ModelFacts()
FACTS = json.loads(FILE.read_text(encoding="utf-8"))
# Of upstream's BENCHMARK_USE_SGD, CI_USE_SGD and CI_SKIP_OPTIMIZER the names in our suites; they
# hold in every suite.
SGD = {
    *(
        "BartForCausalLM",
        "BartForConditionalGeneration",
        "BlenderbotSmallForCausalLM",
        "ElectraForCausalLM",
    ),
    *(
        "OPTForCausalLM",
        "TrOCRForCausalLM",
        "adv_inception_v3",
        "alexnet",
        "densenet121",
        "ghostnet_100",
        "lcnet_050",
    ),
    *(
        "mobilenet_v2",
        "res2net50_14w_8s",
        "resnet18",
        "shufflenet_v2_x1_0",
        "squeezenet1_1",
        "tf_efficientnet_b0",
    ),
    "vgg16",
}
SGD_IN_CI = {
    "dm_nfnet_f0",
    "inception_v3",
    "mobilevit_s",
    "poolformer_m36",
    "regnety_002",
    "resnet50",
}
NO_OPTIMIZER = {"MobileBertForMaskedLM", "hrnet_w18"}


def judge(
    suite: str, model: str, mode: str = "inference", dtype: str = "float32", **run: Any
) -> float:
    given = {"device": "cuda", **run}
    return tolerance_for(facts_for(suite, model), suite=suite, mode=mode, dtype=dtype, **given)[0]


def entries() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{suite}/{name}", entry)
        for suite, all_ in FACTS["models"].items()
        for name, of in all_.items()
        for entry in of
    ]


@pytest.mark.parametrize(
    ("model", "entry"),
    entries(),
    ids=lambda entry: entry if isinstance(entry, str) else entry["fact"],
)
def test_every_entry_says_a_known_fact_of_known_runs_and_why(
    model: str, entry: dict[str, Any]
) -> None:
    assert entry["fact"] in FACTS["facts"], model
    assert set(entry) <= {"fact", "value", "when", "reason"}
    assert set(entry.get("when", {})) <= set(FACTS["when"])
    assert 10 < len(entry["reason"]) < 110
    assert ("value" in entry) == ("(value)" in FACTS["facts"][entry["fact"]])


@pytest.mark.parametrize(
    ("suite", "mode", "dtype", "device", "tolerance"),
    [
        ("timm", "inference", "float32", "cpu", 1e-3),
        ("timm", "training", "amp", "cuda", 1e-2),
        ("transformers", "inference", "bfloat16", "cuda", 1e-3),
        ("transformers", "training", "float32", "cpu", 1e-2),
        ("torchvision", "inference", "float32", "cuda", 1e-4),
        ("torchvision", "inference", "bfloat16", "cuda", 1e-4),
        ("torchvision", "inference", "float16", "cuda", 1e-3),
        ("torchvision", "training", "amp", "cpu", 1e-3),
        ("torchvision", "training", "float32", "cpu", 1e-4),
        ("torchvision", "training", "float32", "cuda", 1e-3),
        ("builtin", "inference", "float32", "cpu", 1e-3),
        ("local", "training", "float32", "cuda", 1e-2),
    ],
)
def test_a_model_of_which_nothing_is_known_is_judged_by_its_suites_rule(
    suite: str, mode: str, dtype: str, device: str, tolerance: float
) -> None:
    assert tolerance_for(NOTHING, suite=suite, mode=mode, dtype=dtype, device=device) == (
        tolerance,
        False,
    )


def test_timms_own_tolerances_are_of_training() -> None:
    assert judge("timm", "beit_base_patch16_224", "training") == 0.16
    assert judge("timm", "deit_base_distilled_patch16_224", "training") == 0.08
    assert judge("timm", "inception_v3", "training") == 0.04
    assert judge("timm", "inception_v3") == 1e-3


def test_freezing_folds_batch_norms_and_needs_more() -> None:
    assert judge("timm", "adv_inception_v3", freezing=True) == 0.08
    assert judge("timm", "adv_inception_v3") == 1e-3
    assert judge("timm", "adv_inception_v3", "training", freezing=True) == 1e-2


def test_a_transformers_tolerance_depends_on_the_device() -> None:
    name = "GPT2ForSequenceClassification"
    assert judge("transformers", name, device="cpu") == 0.005
    assert judge("transformers", name) == 0.004
    assert judge("transformers", name, "training") == 0.01
    assert judge("transformers", "BertForMaskedLM", "training") == 0.02


def test_a_torchvision_tolerance_is_of_half_precision_and_of_training_on_a_gpu() -> None:
    assert judge("torchvision", "squeezenet1_1", "training") == 0.08
    assert judge("torchvision", "squeezenet1_1", dtype="float16") == 0.08
    assert judge("torchvision", "squeezenet1_1", "training", device="cpu") == 1e-4
    assert judge("torchvision", "mobilenet_v2", dtype="amp", freezing=True) == 0.08
    assert judge("torchvision", "mobilenet_v2", freezing=True) == 1e-4


def test_models_are_trained_by_upstreams_optimizers() -> None:
    models = suites.list_models(("torchvision", "timm", "transformers"))
    facts = {model: facts_for(model.suite, model.name) for model in models}
    assert [model for model in models if facts[model].find("no_optimizer")] == named(
        models, NO_OPTIMIZER
    )
    assert [model for model in models if facts[model].find("use_sgd", ci=False)] == named(
        models, SGD
    )
    assert [model for model in models if facts[model].find("use_sgd", ci=True)] == named(
        models, SGD | SGD_IN_CI
    )


def named(models: list[ModelRef], names: set[str]) -> list[ModelRef]:
    return [model for model in models if model.name in names]


def test_a_skip_is_of_the_runs_it_names() -> None:
    slow = facts_for("timm", "nfnet_l0")
    assert (
        slow.reason("skip", device="cpu", mode="inference", machine="aarch64")
        == "times out on aarch64"
    )
    assert slow.reason("skip", device="cpu", mode="inference", machine="x86_64") is None
    assert facts_for("transformers", "Reformer").reason(
        "skip", device="cuda", mode="training", backend="eager"
    )
    assert facts_for("torchvision", "mnasnet1_0").reason("skip", device="cuda") is None


@pytest.mark.parametrize(
    ("suite", "model", "block"),
    [
        ("builtin", "transformer_decoder", "DecoderBlock"),
        ("transformers", "LlamaForCausalLM", "LlamaDecoderLayer"),
        ("transformers", "BertForMaskedLM", "BertLayer"),
        ("transformers", "T5ForConditionalGeneration", "T5Block"),
    ],
)
def test_fsdp_shards_a_model_by_upstreams_blocks(suite: str, model: str, block: str) -> None:
    fact = facts_for(suite, model).find("fsdp_wrap")
    assert fact and fact.value == block


def test_facts_in_every_run_hold_in_each() -> None:
    known = ModelFacts((Fact("tolerance", "it is noisy", 0.5), Fact("cosine", "it is large")))
    assert (known.reason("tolerance"), known.reason("cosine")) == ("it is noisy", "it is large")
    assert tolerance_for(known, suite="timm", mode="training", dtype="amp", device="cpu") == (
        0.5,
        True,
    )
    assert facts_for("transformers", "BlenderbotForCausalLM").reason("accuracy_skip")
    assert facts_for("transformers", "GoogleFnet").dtype_for("bfloat16") == "float32"
    assert facts_for("timm", "mobilevit_s").loss_divisor == 1000
