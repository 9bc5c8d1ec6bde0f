"""What is found in what somebody said: by rules, and by a model whose answer is not trusted."""

import pytest

from agentcore.memory.extraction import SCHEMA, ExtractionFailed, ModelExtractor, RuleExtractor, Said


def refuse(*given):
    raise AssertionError("rules ask no model")


def by_rules(text):
    found = RuleExtractor().extract(Said(user=text, assistant="My name is Bot."), ask=refuse)
    return [item.text for item in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My name is Ada Lovelace and I have a question.", ["The user's name is Ada Lovelace."]),
        ("my name is ada", ["The user's name is ada."]),
        ("Please call me Tom.", ["The user's name is Tom."]),
        ("Please call me back tomorrow.", []),
        ("My e-mail is ada@example.com, thanks.", ["The user's email is ada@example.com."]),
        ("I live in São Paulo.", ["The user lives in São Paulo."]),
        ("I work for the post office!", ["The user works for the post office."]),
        ("I prefer tea, not coffee", ["The user prefers tea."]),
        ("I'm allergic to nuts.", ["The user is allergic to nuts."]),
        ("Please remember that the door is green.", ["To remember: the door is green."]),
        ("My order number is A-1007.", ["The user's order is A-1007.", "order A-1007"]),
        ("Where is my invoice #5531?", ["The user's invoice is 5531.", "invoice 5531"]),
        ("My order is late.", []),
        ("Hello there.", []),
        ("", []),
    ],
)
def test_rules_find_what_is_said_in_so_many_words(text, found):
    assert by_rules(text) == found


def test_rules_are_quick_on_any_text():
    assert len(by_rules("my order 1 " * 20_000)) == 20
    by_rules("my name is " + "A" * 100_000)
    by_rules("my e-mail is " + "a" * 100_000)


def test_an_entity_has_name_and_type():
    [_, entity] = RuleExtractor().extract(Said(user="my ticket is T-88", assistant=""), ask=refuse)
    assert (entity.kind, entity.data) == ("entity", {"name": "T-88", "type": "ticket"})


def test_a_model_is_asked_once_with_a_schema_and_what_was_said():
    asked = []

    def ask(instructions, text, schema):
        asked.append((text, schema))
        order = {"name": "A-1", "type": "order", "attributes": {"state": "late"}}
        return {"facts": ["Likes tea.", " "], "entities": [order]}

    found = ModelExtractor().extract(Said(user="hello", assistant="Hi."), ask=ask)
    assert asked == [("User:\nhello\n\nAssistant:\nHi.", SCHEMA)]
    assert [(item.kind, item.text) for item in found] == [("fact", "Likes tea."), ("entity", "order A-1 (state: late)")]
    assert found[1].data["attributes"] == {"state": "late"}


@pytest.mark.parametrize("answer", [None, [], "facts", {"facts": "x"}, {"facts": []}, {"facts": [], "entities": {}}])
def test_an_answer_of_another_form_is_no_list_of_facts(answer):
    with pytest.raises(ExtractionFailed):
        ModelExtractor().extract(Said(user="", assistant=""), ask=lambda *given: answer)


def test_what_is_no_fact_among_facts_is_left_out_and_there_is_an_end_to_it():
    answer = {"facts": [1, None, {}, *(f"fact {number}" for number in range(99))], "entities": [1, {"name": "x"}, {}]}
    found = ModelExtractor().extract(Said(user="", assistant=""), ask=lambda *given: answer)
    assert len(found) == 20
    assert {item.kind for item in found} == {"fact"}
