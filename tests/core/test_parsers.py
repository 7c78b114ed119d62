"""Bodies that cannot be read are refused by place."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import BadInput, RpmError
from apps.core.parsers import BoundedJSONParser


@pytest.mark.parametrize(
    ("body", "want_field", "want_words"),
    [
        pytest.param(b"{", "body", "is not JSON", id="half an object"),
        pytest.param(b"\xff", "body", "is not JSON", id="not even text"),
        pytest.param(b'{"a": NaN}', "a", "is NaN or infinite", id="NaN at the top"),
        pytest.param(
            b'{"pools": [{}, {"capacity": {"gpu": -Infinity}}]}',
            "pools[1].capacity.gpu",
            "is NaN or infinite",
            id="an infinity further down",
        ),
        pytest.param(b"[" * 100_000, "body", "nested too deeply", id="brackets without end"),
    ],
)
def test_a_bad_body_is_refused_by_place(body: bytes, want_field: str, want_words: str) -> None:
    with pytest.raises(BadInput) as caught:
        BoundedJSONParser().parse(io.BytesIO(body))

    assert want_words in caught.value.fields[want_field]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_every_body_is_read_or_refused_with_a_field(value: object) -> None:
    body = json.dumps(value).encode()

    read, fields = _read(body)

    assert fields or json.dumps(read) == json.dumps(value)


def _read(body: bytes) -> tuple[object, dict[str, str]]:
    try:
        return BoundedJSONParser().parse(io.BytesIO(body)), {}
    except RpmError as error:
        return None, error.fields
