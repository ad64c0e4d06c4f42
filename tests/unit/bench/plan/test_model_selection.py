"""Which models of a list are measured: upstream's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.bench.plan.models import ModelRef, select_models


def refs(*names: str, suite: str = "s") -> list[ModelRef]:
    return [ModelRef(suite, name, "m:f") for name in names]


def names(chosen: list[ModelRef]) -> list[str]:
    return [ref.name for ref in chosen]


MODELS = refs("resnet50", "BertForMaskedLM", "resnet18", "vgg16")


def test_everything_is_chosen_in_one_order_however_it_came() -> None:
    both = [*refs("b", "a", suite="two"), *refs("z", suite="one")]
    assert names(select_models(both)) == names(select_models(both[::-1])) == ["z", "a", "b"]


def test_filters_search_anywhere_whatever_the_case() -> None:
    assert names(select_models(MODELS, filter=["BERT", "vgg"])) == ["BertForMaskedLM", "vgg16"]
    assert names(select_models(MODELS, filter=["^res"], exclude=["50$"])) == ["resnet18"]
    assert names(select_models(MODELS, exclude=["res", "bert"])) == ["vgg16"]


def test_exclude_exact_takes_the_whole_name_only() -> None:
    assert names(select_models(MODELS, exclude_exact=["resnet", "resnet18", "VGG16"])) == [
        "BertForMaskedLM",
        "resnet50",
        "vgg16",
    ]


def test_only_is_exact_and_overrules_the_rest() -> None:
    assert names(
        select_models(MODELS, only="vgg16", filter=["bert"], total_partitions=4, partition_id=0)
    ) == ["vgg16"]
    with pytest.raises(
        ValueError, match=r"--only resnet: no model of s has this name; did you mean resnet"
    ):
        select_models(MODELS, only="resnet")


def test_only_finds_the_model_of_every_chosen_suite() -> None:
    selected = select_models(
        [*refs("resnet18", suite="timm"), *refs("resnet18", suite="torchvision")], only="resnet18"
    )
    assert [ref.suite for ref in selected] == ["timm", "torchvision"]


@given(st.lists(st.text(min_size=1), max_size=40, unique=True), st.integers(1, 15))
def test_partitions_share_nothing_and_leave_nothing_out(given_names: list[str], total: int) -> None:
    models = refs(*given_names)
    parts = [
        select_models(models, total_partitions=total, partition_id=number)
        for number in range(total)
    ]
    assert [ref for part in parts for ref in part] == select_models(models)
    assert all(len(part) == len(models) // total for part in parts[:-1])


def test_partitions_are_cut_before_the_filter_which_moves_no_model_to_another_machine() -> None:
    chosen = {"filter": ["res"], "total_partitions": 2}
    assert names(select_models(MODELS, partition_id=0, **chosen)) == ["resnet18"]  # type: ignore[arg-type]
    assert names(select_models(MODELS, partition_id=1, **chosen)) == ["resnet50"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("total", "number"), [(2, 2), (2, -1), (1, 1)])
def test_a_partition_that_there_is_not_is_refused(total: int, number: int) -> None:
    with pytest.raises(ValueError, match=r"--partition-id .*expected"):
        select_models(MODELS, total_partitions=total, partition_id=number)


def test_a_broken_expression_is_named_with_its_flag() -> None:
    with pytest.raises(ValueError, match=r"--exclude res\(: not a regular expression: missing \)"):
        select_models(MODELS, exclude=["res("])
