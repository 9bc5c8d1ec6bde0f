"""Canonical JSON: one form of every value, before and after storing it, on the database in use."""

import hashlib
import json
import math
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore import canonical
from agentcore.models import AgentSession

# Every code point, NUL and lone surrogates among them.
TEXT = st.text(st.characters(), max_size=12) | st.text(st.sampled_from("a\x00\ud83d\ude00\ud800é漢😀"), max_size=8)
NUMBERS = (
    st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@pytest.fixture
def stored(make_session):
    """Store a value in a JSONField and read it back."""
    session = make_session()

    def store(value):
        AgentSession.objects.filter(pk=session.pk).update(metadata={"value": value})
        return AgentSession.objects.get(pk=session.pk).metadata["value"]

    return store


def plain(value):
    return canonical.normalise(canonical.clean(value))


@given(VALUES)
def test_the_stored_form_is_what_json_gives_back(value):
    form = plain(value)
    assert json.loads(json.dumps(form)) == form
    assert canonical.digest(json.loads(json.dumps(form))) == canonical.digest(form)


@given(VALUES)
def test_normalising_and_cleaning_twice_changes_nothing(value):
    form = plain(value)
    assert canonical.dumps(plain(form)) == canonical.dumps(form)


@given(VALUES)
def test_what_is_normalised_has_the_digest_of_what_was_given(value):
    cleaned = canonical.clean(value)
    assert canonical.digest(canonical.normalise(cleaned)) == canonical.digest(cleaned)


@pytest.mark.django_db
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES)
def test_the_database_gives_back_what_was_hashed(stored, value):
    form = plain(value)
    read = stored(form)
    assert canonical.digest(read) == canonical.digest(form)
    assert canonical.dumps(read) == canonical.dumps(form)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "value",
    [1.0, -0.0, 1e300, 5e-324, 2**63, -(2**64), 0.1, 1e-7, 1.7976931348623157e308, Decimal("1E+3"), Decimal("0.10")],
)
def test_numbers_at_the_edges_survive_the_database(stored, value):
    assert canonical.digest(stored(canonical.normalise(value))) == canonical.digest(value)


@given(VALUES)
def test_clean_values_hold_nothing_that_cannot_be_stored(value):
    cleaned = canonical.clean(value)
    assert not canonical.has_unstorable_text(cleaned)
    canonical.dumps(cleaned).encode()


@given(VALUES)
def test_unstorable_text_is_found_exactly_where_it_is(value):
    def strings(part):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            for key, item in part.items():
                yield key
                yield from strings(item)
        elif isinstance(part, list | tuple):
            for item in part:
                yield from strings(item)

    bad = any(c == "\x00" or 0xD800 <= ord(c) <= 0xDFFF for text in strings(value) for c in text)
    assert canonical.has_unstorable_text(value) == bad


@given(TEXT)
def test_prv_23_pairs_are_joined_and_lone_surrogates_replaced(text):
    expected, index = [], 0
    while index < len(text):
        first = ord(text[index])
        second = ord(text[index + 1]) if index + 1 < len(text) else 0
        if 0xD800 <= first <= 0xDBFF and 0xDC00 <= second <= 0xDFFF:
            expected.append(chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)))
            index += 2
            continue
        expected.append("\ufffd" if first == 0 or 0xD800 <= first <= 0xDFFF else text[index])
        index += 1
    assert canonical.clean_text(text) == "".join(expected)


def test_prv_23_an_emoji_in_two_halves_becomes_the_emoji():
    assert canonical.clean_text("\ud83d\ude00") == "😀"
    assert canonical.clean_text("a\ud83db\udc97\x00") == "a\ufffdb\ufffd\ufffd"
    assert canonical.clean({"k\x00": ["\ud83d\ude00", 1, None]}) == {"k\ufffd": ["😀", 1, None]}


def test_keys_are_sorted_and_nothing_is_escaped_or_spaced():
    assert canonical.dumps({"b": 1, "a": [True, None, "é漢😀"], "B": {}}) == '{"B":{},"a":[true,null,"é漢😀"],"b":1}'


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=6))
def test_the_order_of_keys_does_not_matter(value):
    assert canonical.digest(dict(reversed(value.items()))) == canonical.digest(value)


def test_decimals_are_text_and_whole_floats_integers():
    assert canonical.normalise([Decimal("0.10"), 2.0, 2.5, -0.0]) == ["0.10", 2, 2.5, 0]
    assert canonical.dumps(2.0) == "2"
    assert canonical.digest({"n": 2.0}) == canonical.digest({"n": 2})
    assert canonical.digest({"n": True}) != canonical.digest({"n": 1})


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("-Infinity"), [{"a": math.nan}]]
)
def test_no_nan_and_no_infinity(value):
    with pytest.raises(ValueError, match="NaN or infinity"):
        canonical.dumps(value)


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, {None: 1}, {1, 2}, object()])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(TypeError):
        canonical.normalise(value)


@given(VALUES)
def test_the_digest_is_the_sha256_of_the_text_in_utf_8(value):
    cleaned = canonical.clean(value)
    raw = canonical.dumps(cleaned).encode("utf-8")
    assert canonical.digest(cleaned) == hashlib.sha256(raw).hexdigest()
    assert canonical.byte_size(cleaned) == len(raw)
