"""What a request is taken to cost, and what is left out or cut so that it fits."""

import json

import pytest

from agentcore.engine import budget, retelling
from agentcore.exceptions import TurnFailure
from agentcore.messages import Message, ToolRequest, ToolSpec


def user(text):
    return retelling.user_group(text)


def call(*results, arguments="{}", content=None):
    ids = [f"c{number}" for number in range(len(results))]
    requests = tuple(ToolRequest(id=id, name="look", arguments=arguments) for id in ids)
    told = [Message(role="tool", content=text, tool_call_id=id) for id, text in zip(ids, results, strict=True)]
    return budget.group(Message(role="assistant", content=content, tool_calls=requests), *told)


def contents(groups):
    return [message.content for item in groups for message in item.messages]


def cost(groups):
    return sum(budget.message_tokens(message) for item in groups for message in item.messages)


# Tokens per character that common tokenizers need at most for running text of the kind.
@pytest.mark.parametrize(
    ("text", "per_character"),
    [
        ("The customer wants the money back. ", 0.25),
        ("Клиент хочет вернуть деньги. ", 0.6),
        ("客户想要退款。", 1.3),
        ("ग्राहक पैसे वापस चाहता है। ", 1.2),
        ("😀🎉", 2.0),
        ('{"id": 12345, "ok": true}, ', 0.42),
    ],
)
def test_the_estimate_holds_for_any_script(text, per_character):
    assert budget.text_tokens(text * 100) >= len(text) * 100 * per_character


def test_no_text_is_taken_for_more_tokens_than_it_has_bytes():
    for text in ("a", "é", "字", "😀", "plain words", "\ud83d"):
        assert 1 <= budget.text_tokens(text) <= len(text.encode("utf-8", "surrogatepass")) + 1


def test_tools_cost_their_names_descriptions_and_schemas():
    small = ToolSpec(name="a", description="b", parameters={})
    large = ToolSpec(name="a", description="b", parameters={"properties": {"q": {"description": "x" * 3000}}})
    assert budget.tools_tokens((small, large)) > 1000 + budget.tools_tokens((small,))


def test_what_fits_is_left_alone():
    groups = [user("one"), call("two"), user("three")]
    assert budget.fit(groups, own=2, room=1000) == groups


def test_the_oldest_groups_are_left_out_whole_and_the_first_message_stays():
    groups = [user("first")]
    for number in range(20):
        groups += [call("r" * 300, content=f"step {number}")]
    groups.append(user("own"))
    kept = budget.fit(groups, own=len(groups) - 1, room=600)
    assert kept[0] == groups[0]
    assert kept[1:] == groups[-len(kept) + 1 :]
    assert 2 < len(kept) < len(groups)
    assert cost(kept) <= 600


def test_a_group_in_the_middle_that_is_too_large_ends_the_past():
    groups = [user("first"), user("older"), user("x" * 3000), user("newer"), user("own")]
    assert contents(budget.fit(groups, own=4, room=300)) == ["first", "newer", "own"]


def test_the_turns_own_message_stays_when_its_steps_fill_the_room():
    groups = [user("first"), user("between"), user("own"), *(call("r" * 900) for _ in range(10))]
    kept = budget.fit(groups, own=2, room=1000)
    assert contents(kept)[:2] == ["first", "own"]
    assert kept[-1] == groups[-1]
    assert cost(kept) <= 1000


def test_the_newest_results_are_cut_to_one_length_with_a_mark_and_short_ones_are_not():
    groups = [user("own"), call("short", "a" * 9000, "b" * 6000)]
    [_, kept] = budget.fit(groups, own=0, room=2000)
    short, first, second = (message.content for message in kept.messages[1:])
    assert short == "short"
    assert "[cut: the result has 9000 characters, the first" in first
    assert "[cut: the result has 6000 characters, the first" in second
    assert abs(len(first) - len(second)) < 10
    assert 1900 < cost([groups[0], kept]) <= 2000


def test_a_cut_tells_the_length_before_an_earlier_cut():
    group = budget.group(*call("x" * 900).messages, lengths=(0, 5_000_000))
    [_, kept] = budget.fit([user("own"), group], own=0, room=200)
    assert "the result has 5000000 characters" in kept.messages[1].content


def test_long_arguments_are_cut_and_stay_an_object():
    groups = [user("own"), call("done", arguments=json.dumps({"text": 'ü"\\' * 3000}))]
    [_, kept] = budget.fit(groups, own=0, room=500)
    left = json.loads(kept.messages[0].tool_calls[0].arguments)
    assert set(left) == {"cut", "head"}
    assert cost([groups[0], kept]) <= 500


def test_a_long_first_message_is_cut_rather_than_lost():
    groups = [user("word " * 5000), user("own")]
    first, own = contents(budget.fit(groups, own=1, room=1000))
    assert first.startswith("word word")
    assert "[cut: the message has 25000 characters" in first
    assert own == "own"


def test_hundreds_of_results_in_one_reply_fit_or_fail_clearly():
    groups = [user("own"), call(*["r" * 500] * 100)]
    kept = budget.fit(groups, own=0, room=9000)
    assert cost(kept) <= 9000
    assert len(kept[1].messages) == 101
    with pytest.raises(TurnFailure) as caught:
        budget.fit(groups, own=0, room=3000)
    assert caught.value.code == "too_large"


def test_a_room_too_small_for_the_turns_own_message_is_a_clear_failure():
    with pytest.raises(TurnFailure, match="CONTEXT_TOKENS") as caught:
        budget.fit([user("first"), user("x" * 3000)], own=1, room=500)
    assert caught.value.code == "too_large"
    assert caught.value.details == {"room": 500, "needed": 1007}
