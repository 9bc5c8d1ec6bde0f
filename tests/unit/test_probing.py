"""Ask all at once: nobody waits for two times the limit, and what hangs is not asked again."""

import threading
import time

import pytest

from agentcore.engine import probing

LONG = 20


@pytest.fixture
def hanging():
    """A probe that answers when it is told to, and says how often it was asked."""
    may_answer, asked = threading.Event(), []

    def probe():
        asked.append(threading.current_thread())
        may_answer.wait(LONG)
        return "late"

    probe.may_answer, probe.asked = may_answer, asked
    yield probe
    may_answer.set()
    for thread in asked:
        thread.join(LONG)


def within(seconds):
    return lambda name: seconds


def test_all_are_asked_at_once():
    met = threading.Barrier(3, timeout=LONG)

    def meet():
        met.wait()
        return ""

    answers = probing.ask_all(dict.fromkeys(("a", "b", "c"), meet), seconds=within(LONG))
    assert {name: answer.detail for name, answer in answers.items()} == {"a": "", "b": "", "c": ""}


def test_the_whole_takes_as_long_as_one_may(hanging):
    began = time.monotonic()
    answers = probing.ask_all(
        {f"slow-{number}": hanging for number in range(5)} | {"quick": str}, seconds=lambda name: 0.2
    )
    assert time.monotonic() - began < 5 * 0.2
    assert answers["quick"].detail == ""
    assert {answers[f"slow-{number}"] for number in range(5)} == {probing.NO_ANSWER}


def test_what_hangs_is_not_asked_again_and_not_waited_for(hanging):
    assert probing.ask_all({"hangs": hanging}, seconds=within(0.05))["hangs"] == probing.NO_ANSWER
    began = time.monotonic()
    assert probing.ask_all({"hangs": hanging}, seconds=within(LONG))["hangs"] == probing.NO_ANSWER
    assert time.monotonic() - began < LONG / 2
    assert len(hanging.asked) == 1
    hanging.may_answer.set()
    hanging.asked[0].join(LONG)
    assert probing.ask_all({"hangs": hanging}, seconds=within(LONG))["hangs"].detail == "late"
    assert len(hanging.asked) == 2


def test_who_asks_meanwhile_waits_for_the_same_answer(hanging):
    answers = []
    others = [
        threading.Thread(
            target=lambda: answers.append(probing.ask_all({"shared": hanging}, seconds=within(LONG))["shared"])
        )
        for _ in range(3)
    ]
    for other in others:
        other.start()
    hanging.may_answer.set()
    for other in others:
        other.join(LONG)
    assert [answer.detail for answer in answers] == ["late"] * 3


def test_an_error_is_an_answer():
    def broken():
        raise OSError("db-7 is down")

    assert isinstance(probing.ask_all({"broken": broken}, seconds=within(LONG))["broken"].error, OSError)
