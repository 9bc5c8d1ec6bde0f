"""What every embedder promises; and how OpenAI's answers and errors are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from django.test import override_settings

from agentcore import vectors
from agentcore.exceptions import ConfigurationError, EmbedderFailed
from agentcore.vectors import Embedder, registry
from tests.contracts.local_server import LocalServer, raw, whole
from tests.contracts.requests import KEY

TEXTS = ["The refund takes five days.", "", "Ein ganz anderer Satz 🦊", "x" * 5000, "the refund takes five days."]


class Fixed(Embedder):
    """Gives what a test put here."""

    id = "fixed:2"
    answer: Any = ()

    def compute(self, texts: Sequence[str]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Nameless:
    def embed(self, texts: Sequence[str]) -> list[Any]:
        return []


@pytest.fixture(params=["hashing", "wordllama"])
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    if request.param == "wordllama":
        pytest.importorskip("wordllama")
    with override_settings(AGENTCORE={"EMBEDDER": request.param}):
        yield vectors.embedder()


def test_each_text_gets_a_vector_of_length_one_or_nought(embedder: Embedder) -> None:
    found = embedder.embed(TEXTS)
    assert len(found) == len(TEXTS)
    assert {item.kind for item in found} == {found[0].kind}
    assert found[0].kind.embedder == embedder.id
    for item in found:
        assert item.values.dtype == np.float32
        assert float(np.linalg.norm(item.values)) == pytest.approx(1, abs=1e-5) or not item.values.any()


def test_the_same_text_gets_the_same_vector_alone_or_among_others(embedder: Embedder) -> None:
    among = embedder.embed(TEXTS)[0].values
    assert np.allclose(embedder.embed([TEXTS[0]])[0].values, among, atol=1e-5)


def test_what_is_about_the_same_is_nearer(embedder: Embedder) -> None:
    sought, near, far = embedder.embed(
        ["how many days does a refund take", "A refund takes five days.", "Our shop is closed on public holidays."]
    )
    assert sought.values @ near.values > sought.values @ far.values + 0.1


def test_nothing_to_embed_is_nothing(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


def test_wordllama_knows_meaning() -> None:
    pytest.importorskip("wordllama")
    with override_settings(AGENTCORE={"EMBEDDER": "wordllama"}):
        sought, near, far = vectors.embedder().embed(
            ["How do I get my money back?", "Refunds are paid within five days.", "The office has a coffee machine."]
        )
    assert sought.values @ near.values > sought.values @ far.values + 0.1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([[1.0, 2.0]], "shape"),
        ([[1.0], [2.0, 3.0]], "ValueError"),
        ([[float("nan"), 1.0], [1.0, 1.0]], "not finite"),
        ([[], []], "shape"),
        (KeyError("secret"), "KeyError"),
    ],
)
def test_a_bad_answer_is_a_clear_failure(answer: Any, said: str) -> None:
    embedder = Fixed()
    embedder.answer = answer
    with pytest.raises(EmbedderFailed, match=said) as raised:
        embedder.embed(["a", "b"])
    assert "fixed:2" in raised.value.message
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"EMBEDDER": "magic"}, r"'hashing', 'wordllama', 'provider:model'.*dotted path"),
        ({"EMBEDDER": "no.such.Thing"}, "cannot be imported"),
        ({"EMBEDDER": f"{__name__}.Nameless"}, "has the id None"),
        ({"EMBEDDER": "anthropic:claude"}, "it must be one of the class 'openai': 'openai'"),
        ({"VECTOR_INDEX": "magic"}, r"'exact', 'pgvector', or a dotted path"),
        ({"VECTOR_INDEX": f"{__name__}.Nameless"}, "has no put, remove"),
    ],
)
def test_a_setting_that_names_nothing_usable_is_told(given: dict[str, Any], said: str) -> None:
    with override_settings(AGENTCORE=given):
        (problem,) = registry.problems()
        assert problem
        with pytest.raises(ConfigurationError, match=said):
            vectors.embedder() if "EMBEDDER" in given else vectors.index()


@pytest.fixture
def over_http(server: LocalServer) -> Iterator[Embedder]:
    entry = {"class": "openai", "base_url": server.url, "api_key": KEY}
    with override_settings(AGENTCORE={"EMBEDDER": "local:tiny", "PROVIDERS": {"local": entry}}):
        yield vectors.embedder()


def answer(*values: list[float]) -> Any:
    data = [{"object": "embedding", "index": place, "embedding": item} for place, item in enumerate(values)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return whole({"object": "list", "data": data[::-1], "model": "tiny", "usage": usage})


def test_openai_vectors_come_in_the_order_of_the_texts(server: LocalServer, over_http: Embedder) -> None:
    server.will_answer(answer([0.0, 2.0], [3.0, 0.0]))
    found = over_http.embed(["a", "b"])
    assert [item.values.tolist() for item in found] == [[0.0, 1.0], [1.0, 0.0]]
    assert found[0].kind == ("local:tiny", 2)
    assert server.requests[0]["input"] == ["a", "b"]
    assert server.requests[0]["model"] == "tiny"


def test_openai_texts_are_sent_in_parts(server: LocalServer, over_http: Embedder) -> None:
    server.will_answer(answer(*[[1.0, 0.0]] * 128), answer(*[[0.0, 1.0]] * 2))
    assert len(over_http.embed(["text"] * 130)) == 130
    assert [len(request["input"]) for request in server.requests] == [128, 2]


def test_openai_refusal_is_told_without_what_the_server_said(server: LocalServer, over_http: Embedder) -> None:
    server.will_answer(raw(401, json.dumps({"error": {"message": f"bad key {KEY}"}}).encode()))
    with pytest.raises(EmbedderFailed, match="HTTP status 401") as raised:
        over_http.embed(["a"])
    assert KEY not in raised.value.message


def test_openai_answer_that_lacks_a_vector_is_a_failure(server: LocalServer, over_http: Embedder) -> None:
    server.will_answer(answer([1.0, 0.0]))
    with pytest.raises(EmbedderFailed, match="1 vectors for 2 texts"):
        over_http.embed(["a", "b"])
