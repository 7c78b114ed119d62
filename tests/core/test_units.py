"""Amounts as people write them, and as thousandths."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import BadInput
from apps.core.units import (
    LARGEST_MILLI,
    amount_text,
    amounts_text,
    check_request,
    milli,
    milli_text,
    quantities_text,
    quantity_text,
)


@pytest.mark.parametrize(
    ("given_value", "want_text", "want_milli"),
    [
        pytest.param(4, "4", 4000, id="a whole number"),
        pytest.param(0.5, "0.5", 500, id="a float"),
        pytest.param("0.125", "0.125", 125, id="three places"),
        pytest.param("2.500", "2.5", 2500, id="zeros at the end say nothing"),
        pytest.param("1.0000", "1", 1000, id="a fourth place that is zero"),
        pytest.param(Decimal("1.25"), "1.25", 1250, id="a decimal"),
        pytest.param("1/7", "1/7", 142, id="a share is rounded down and kept as typed"),
        pytest.param(0, "0", 0, id="zero"),
        pytest.param(1e3, "1000", 1_000_000, id="a float in other notation"),
    ],
)
def test_an_amount_is_read(given_value: object, want_text: str, want_milli: int) -> None:
    text = quantity_text(given_value, field="capacity.gpu")

    assert (text, milli(text)) == (want_text, want_milli)


@pytest.mark.parametrize(
    ("key", "given_value", "want_text"),
    [
        pytest.param("cpu", "500m", "0.5", id="Kubernetes, CPU"),
        pytest.param("cpu", "500mcpu", "0.5", id="ZenML, CPU"),
        pytest.param("cpu", "4cpu", "4", id="whole CPUs"),
        pytest.param("gpu", "250m", "0.25", id="thousandths of a GPU"),
        pytest.param("gpu", "2 GPU", "2", id="as a page shows it"),
        pytest.param("license", "1500mlicense", "1.5", id="a key of one's own"),
        pytest.param("memory_mb", "16Gi", "16384", id="Kubernetes, memory"),
        pytest.param("memory_mb", "2GiB", "2048", id="ZenML, memory"),
        pytest.param("memory_mb", "1TB", "1048576", id="RPM counts in powers of 1024"),
        pytest.param("memory_mb", "0.5 gb", "512", id="small letters"),
        pytest.param("memory_mb", "512Ki", "0.5", id="less than one"),
        pytest.param("memory_mb", "64M", "64", id="megabytes"),
    ],
)
def test_an_amount_has_a_unit(key: str, given_value: str, want_text: str) -> None:
    assert quantities_text({key: given_value}, field="request", keys=[key]) == {key: want_text}


@pytest.mark.parametrize(
    ("key", "given_value", "want_words"),
    [
        pytest.param("memory_mb", "500m", "must be a number of MB", id="thousandths of a byte"),
        pytest.param("memory_mb", "5cpu", "must be a number of MB", id="another key's"),
        pytest.param("cpu", "5Gi", "must be a number such as 4, 0.5 or 500m", id="bytes of CPU"),
        pytest.param("cpu", "1.5m", "more than three decimal places", id="too fine"),
        pytest.param("gpu", "500mcpu", "must be a number", id="another key's thousandths"),
        pytest.param("memory_mb", "9999999999999P", "must be at most", id="too much"),
        pytest.param("cpu", "1/7m", "must be a number", id="a share of a unit"),
        pytest.param("cpu", "-5m", "must not be negative", id="negative"),
    ],
)
def test_a_unit_that_does_not_fit_is_refused(key: str, given_value: str, want_words: str) -> None:
    with pytest.raises(BadInput) as caught:
        quantities_text({key: given_value}, field="request", keys=[key])

    assert want_words in caught.value.fields[f"request.{key}"]


@given(st.sampled_from(["gpu", "cpu", "slot", "license"]), st.integers(0, LARGEST_MILLI))
def test_an_amount_reads_the_same_with_each_unit(key: str, amount: int) -> None:
    spellings = [milli_text(amount), f"{amount}m", f"{amount}m{key}", amount_text(key, amount)]

    found = {quantity_text(text, field="x", key=key) for text in spellings}

    assert found == {milli_text(amount)}


@given(st.integers(0, 9 * 10**6), st.sampled_from(["", "i", "B", "iB"]))
def test_memory_reads_the_same_in_each_unit(gigabytes: int, ending: str) -> None:
    megabytes = gigabytes * 1024
    spellings = [f"{gigabytes}G{ending}", f"{megabytes}M{ending}", f"{megabytes * 1024}k{ending}"]
    spellings.append(amount_text("memory_mb", megabytes * 1000))

    found = {quantity_text(text, field="x", key="memory_mb") for text in spellings}

    assert found == {str(megabytes)}


@given(st.text(), st.sampled_from(["gpu", "memory_mb"]))
def test_any_text_is_an_amount_or_refused(text: str, key: str) -> None:
    try:
        stored = quantity_text(text, field="x", key=key)
    except BadInput:
        return
    assert quantity_text(stored, field="x", key=key) == stored


@pytest.mark.parametrize(
    ("given_value", "want_words"),
    [
        pytest.param(-1, "must not be negative", id="negative"),
        pytest.param("-0.5", "must not be negative", id="negative text"),
        pytest.param("0.1234", "more than three decimal places", id="four places"),
        pytest.param(0.1 + 0.2, "more than three decimal places", id="a float that is not 0.3"),
        pytest.param(math.nan, "must be a number", id="not a number"),
        pytest.param(math.inf, "must be a number", id="endless"),
        pytest.param("1/0", "divides by zero", id="a share of nothing"),
        pytest.param("four", "must be a number", id="a word"),
        pytest.param("", "must be a number", id="nothing"),
        pytest.param(True, "must be a number", id="a truth value"),
        pytest.param(None, "must be a number", id="none"),
        pytest.param([1], "must be a number", id="a list"),
        pytest.param("1e3", "must be a number", id="an exponent"),
        pytest.param("٣", "must be a number", id="digits of another script"),
        pytest.param(LARGEST_MILLI // 1000 + 1, "must be at most", id="too large"),
    ],
)
def test_what_is_no_amount_is_refused_by_name(given_value: object, want_words: str) -> None:
    with pytest.raises(BadInput) as caught:
        quantity_text(given_value, field="capacity.gpu")

    assert want_words in caught.value.fields["capacity.gpu"]


def test_a_bare_number_is_short_for_gpus() -> None:
    assert quantities_text(8, field="capacity", keys=None) == {"gpu": "8"}


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(BadInput) as caught:
        quantities_text({"memory_bm": 1}, field="request", keys=["license"])

    assert "did you mean 'memory_mb'?" in caught.value.fields["request.memory_bm"]


def test_every_bad_key_is_named_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        quantities_text({"gpu": -1, "cpu": "x", "memory_mb": 1}, field="limit", keys=())

    assert set(caught.value.fields) == {"limit.gpu", "limit.cpu"}


@pytest.mark.parametrize("gpu", ["1.5", "2.001"])
def test_a_request_is_a_fraction_below_one_or_whole(gpu: str) -> None:
    with pytest.raises(BadInput):
        check_request({"gpu": gpu}, field="request")


@given(st.integers(0, LARGEST_MILLI))
def test_thousandths_survive_being_written_and_read(amount: int) -> None:
    assert milli(milli_text(amount)) == amount
    assert quantity_text(milli_text(amount), field="x") == milli_text(amount)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_share_never_rounds_up(numerator: int, denominator: int) -> None:
    amount = milli(f"{numerator}/{denominator}")

    assert amount * denominator <= numerator * 1000 < (amount + 1) * denominator


def test_amounts_stand_in_the_order_of_their_keys_with_their_units() -> None:
    texts = {"memory_mb": "262144", "license": "2", "cpu": "32", "gpu": "1/7"}

    assert amounts_text(texts) == "1/7 GPU · 32 CPU · 256 GB · 2 license"


def test_memory_below_a_gigabyte_stays_in_megabytes() -> None:
    assert amount_text("memory_mb", 512_000) == "512 MB"
