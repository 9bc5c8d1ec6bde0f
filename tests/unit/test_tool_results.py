"""The JSON form of whatever a tool returns."""

import asyncio
import itertools
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db.models import TextChoices
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from pydantic import BaseModel

from agentcore import canonical
from agentcore.tools.json_text import MAX_DEPTH
from agentcore.tools.results import MAX_ITEMS, to_json


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Size(TextChoices):
    SMALL = "s", "Small"


@dataclass
class Parcel:
    weight: Decimal
    on: date


class Label(BaseModel):
    text: str
    at: datetime


Point = namedtuple("Point", "x y")


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("hunter2")


class Exits:
    def __repr__(self) -> str:
        raise SystemExit(3)


class Raises:
    """Raises what it is made of wherever it is read."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __str__(self) -> str:
        raise self._error


class Items(dict[str, int]):
    def items(self) -> Any:
        raise asyncio.CancelledError


class Silent:
    pass


class Talkative:
    def __repr__(self) -> str:
        return "Talkative()"


def fails_midway() -> Iterator[int]:
    yield 1
    raise ValueError("hunter2")


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        ("a\x00\ud83d", "a\ufffd\ufffd"),
        ({"a\x00": 1}, {"a\ufffd": 1}),
        (mark_safe("<b>"), "<b>"),
        (5, 5),
        (2**100, 2**100),
        (2**2000, {"omitted": "an integer of 2001 bits"}),
        (5.0, 5),
        (5.5, 5.5),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Decimal("0.10"), "0.10"),
        (Decimal("NaN"), "NaN"),
        (NOON, "2024-05-01T12:00:00+00:00"),
        (NOON.replace(tzinfo=None), "2024-05-01T12:00:00"),
        (date(2024, 5, 1), "2024-05-01"),
        (time(10, 30), "10:30:00"),
        (timedelta(days=1, hours=2), "P1DT02H00M00S"),
        (UUID("a8098c1a-f86e-11da-bd1a-00112444be1e"), "a8098c1a-f86e-11da-bd1a-00112444be1e"),
        (b"\xff\x00", {"base64": "/wA=", "bytes": 2}),
        (bytearray(b"a"), {"base64": "YQ==", "bytes": 1}),
        ({3, 1, 10}, [1, 3, 10]),
        (frozenset({"b", 1}), ["b", 1]),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, 2]),
        (Level.HIGH, 3),
        (Size.SMALL, "s"),
        (Parcel(Decimal("1.50"), date(2024, 5, 1)), {"weight": "1.50", "on": "2024-05-01"}),
        (Label(text="x", at=NOON), {"text": "x", "at": "2024-05-01T12:00:00Z"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        ((1, "a"), [1, "a"]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ((number for number in (1, 2)), [1, 2]),
        (
            {1: "a", (1, 2): "b", None: "c", date(2024, 5, 1): "d"},
            {"1": "a", "[1,2]": "b", "null": "c", "2024-05-01": "d"},
        ),
        (gettext_lazy("Yes"), "Yes"),
        (PurePosixPath("/a"), "/a"),
        (ValueError("no"), "no"),
        (Talkative(), "Talkative()"),
        (Silent(), {"unserialisable": "Silent"}),
        (Silent, {"unserialisable": "type"}),
        (Unprintable(), {"unserialisable": "Unprintable"}),
        (Exits(), {"unserialisable": "Exits"}),
        ({"id": 1, "x": Raises(asyncio.CancelledError())}, {"id": 1, "x": {"unserialisable": "Raises"}}),
        ([Raises(GeneratorExit())], [{"unserialisable": "Raises"}]),
        ({Raises(asyncio.CancelledError()): 1}, {'{"unserialisable":"Raises"}': 1}),
        (Items(a=1), {"unserialisable": "Items"}),
        ([Unprintable(), 1], [{"unserialisable": "Unprintable"}, 1]),
        (fails_midway(), {"unserialisable": "generator"}),
        (len, {"unserialisable": "builtin_function_or_method"}),
    ],
)
def test_prv_20_every_result_has_one_json_form(value: Any, stored: Any) -> None:
    assert canonical.dumps(to_json(value)) == canonical.dumps(stored)


def test_prv_20_a_reference_to_itself_becomes_a_note() -> None:
    value: dict[str, Any] = {"name": "a"}
    value["self"] = value

    assert to_json(value) == {"name": "a", "self": {"omitted": "a reference to itself"}}


def test_the_same_object_twice_is_no_reference_to_itself() -> None:
    part = {"a": 1}

    assert to_json([part, part]) == [part, part]


def test_a_nesting_beyond_the_limit_becomes_a_note() -> None:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]

    text = canonical.dumps(to_json(value))

    assert text.count("[") == MAX_DEPTH
    assert "nested deeper than 24 levels" in text


def test_an_endless_generator_is_cut() -> None:
    stored = to_json(itertools.count())

    assert stored[:MAX_ITEMS] == list(range(MAX_ITEMS))
    assert stored[MAX_ITEMS:] == [{"omitted": "everything after the first 1000 items"}]


async def test_a_forgotten_await_becomes_a_note() -> None:
    async def work() -> None: ...

    assert to_json(work()) == {"unserialisable": "coroutine"}


def test_prv_20_a_model_instance_shows_no_field() -> None:
    user = User(pk=7, username="ann", password="hunter2")

    assert to_json(user) == {"model": "auth.user", "pk": 7, "text": "ann"}
    assert to_json(SimpleLazyObject(lambda: user)) == {"model": "auth.user", "pk": 7, "text": "ann"}


def test_prv_20_a_model_instance_that_has_no_text_keeps_its_key() -> None:
    class Broken(User):
        class Meta:
            proxy = True
            app_label = "auth"

        def __str__(self) -> str:
            raise ValueError("hunter2")

    assert to_json(Broken(pk=7)) == {"model": "auth.broken", "pk": 7, "text": {"unserialisable": "Broken"}}


@pytest.mark.django_db
def test_prv_20_a_queryset_is_a_list_of_its_instances() -> None:
    for name in ("ann", "bob"):
        User.objects.create(username=name)

    names = [item["text"] for item in to_json(User.objects.order_by("username"))]
    values = to_json(User.objects.order_by("username").values("username")[:1])

    assert names == ["ann", "bob"]
    assert values == [{"username": "ann"}]
    assert len(to_json(User.objects)) == 2


def test_keys_with_the_same_text_are_both_kept():
    assert to_json({1: "a", "1": "b", "x\x00": "c", "x\ufffd": "d"}) == {
        "1": "a",
        "1 (2)": "b",
        "x\ufffd": "c",
        "x\ufffd (2)": "d",
    }


class Hostile:
    @property
    def __class__(self):
        raise RuntimeError("no class")


def test_an_object_that_cannot_even_be_looked_at_becomes_a_note():
    assert to_json({"value": Hostile()}) == {"unserialisable": "dict"}
