"""The offline provider: the refund story in all its branches, and agents it has never heard of."""

import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest, ToolRequest, ToolSpec
from agentcore.providers.demo import DemoProvider

BROKEN = "My order 12345 arrived broken, I want my money back"
ORDER = {"order_id": "12345", "status": "delivered", "total": "49.90", "items": [{"name": "Desk lamp"}]}
REFUND = {"refund_id": "R-1001", "amount": "49.90"}


def tool(name: str, about: str, /, **parameters: Any) -> ToolSpec:
    """Describe a tool as the runtime does: a type is a required parameter, (type, default) an optional one."""
    fields = {key: given if isinstance(given, tuple) else (given, ...) for key, given in parameters.items()}
    return ToolSpec(name=name, description=about, parameters=create_model(name, **fields).model_json_schema())


LOOKUP_ORDER = tool("lookup_order", "Look up order information by order ID", order_id=str)
PROCESS_REFUND = tool("process_refund", "Process a refund for an order", order_id=str, amount=Decimal)
CREATE_TICKET = tool("create_ticket", "Create a support ticket", subject=str, description=str)
SUPPORT = (LOOKUP_ORDER, PROCESS_REFUND, CREATE_TICKET)

QUALIFY_LEAD = tool(
    "qualify_lead",
    "Qualify a lead based on company size and budget",
    company_name=str,
    company_size=str,
    budget=float,
)
CREATE_QUOTE = tool("create_quote", "Create a sales quote", lead_id=str, amount=Decimal, products=list[str])
SCHEDULE_MEETING = tool("schedule_meeting", "Schedule a meeting with a lead", lead_id=str, date=str, duration=int)
SALES = (QUALIFY_LEAD, CREATE_QUOTE, SCHEDULE_MEETING)


class Chat:
    """A conversation with the demo provider; the test plays the user and the tools."""

    def __init__(self, *tools: ToolSpec, system: str = "You are a helpful customer support agent.") -> None:
        self.tools = tools
        self.messages = [Message(role="system", content=system)]

    def says(self, text: str) -> ModelReply:
        return self._send(Message(role="user", content=text))

    def gets(self, result: Any) -> ModelReply:
        """Answer the last call: with JSON, or with the very text."""
        call = self.messages[-1].tool_calls[0]
        content = result if isinstance(result, str) else json.dumps(result)
        return self._send(Message(role="tool", content=content, tool_call_id=call.id))

    def request(self) -> ModelRequest:
        return ModelRequest(model="support", messages=tuple(self.messages), tools=self.tools)

    def _send(self, message: Message) -> ModelReply:
        self.messages.append(message)
        reply = DemoProvider().complete(self.request())
        self.messages.append(Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls))
        return reply


def called(reply: ModelReply) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a reply's one call."""
    (call,) = reply.tool_calls
    assert reply.content is None
    assert reply.finish_reason == "tool_calls"
    return call.name, json.loads(call.arguments)


def said(reply: ModelReply) -> str:
    """Return the text of a reply that calls nothing."""
    assert reply.tool_calls == ()
    assert reply.finish_reason == "stop"
    assert reply.content
    return reply.content


@pytest.fixture
def chat() -> Chat:
    return Chat(*SUPPORT)


@pytest.fixture
def refund(chat: Chat) -> Chat:
    """The story up to the refund that waits for its result."""
    chat.says(BROKEN)
    chat.gets(ORDER)
    return chat


# The refund story


def test_a_broken_order_is_looked_up_before_anything_else(chat):
    assert called(chat.says(BROKEN)) == ("lookup_order", {"order_id": "12345"})


def test_the_refund_is_of_the_looked_up_total(chat):
    chat.says(BROKEN)
    assert called(chat.gets(ORDER)) == ("process_refund", {"order_id": "12345", "amount": "49.90"})


def test_a_made_refund_is_reported_with_amount_order_and_refund_id(refund):
    assert said(refund.gets(REFUND)) == "The refund of 49.90 for order 12345 was made. The refund id is R-1001."


def test_call_ids_count_the_calls_of_the_conversation(chat):
    first = chat.says(BROKEN).tool_calls[0].id
    second = chat.gets(ORDER).tool_calls[0].id
    assert (first, second) == ("call_1", "call_2")


def test_call_ids_stay_unique_when_the_start_of_the_conversation_was_cut_off(chat):
    old = ToolRequest(id="call_7", name="lookup_order", arguments='{"order_id": "1"}')
    chat.messages.append(Message(role="assistant", tool_calls=(old,)))
    chat.messages.append(Message(role="tool", content="{}", tool_call_id="call_7"))
    assert chat.says(BROKEN).tool_calls[0].id == "call_8"


def test_a_later_question_is_answered_from_the_history_without_a_call(refund):
    refund.gets(REFUND)
    assert said(refund.says("what was my order status?")) == "The status of order 12345 is delivered."


def test_a_question_without_the_word_order_finds_the_earlier_result_too(refund):
    refund.gets(REFUND)
    assert said(refund.says("And its total?")) == "The total of order 12345 is 49.90."


def test_a_question_about_the_refund_is_answered_from_the_refund(refund):
    refund.gets(REFUND)
    assert "R-1001" in said(refund.says("What about my refund?"))


def test_an_order_is_looked_up_anew_when_the_user_says_again(refund):
    refund.gets(REFUND)
    assert called(refund.says("Check the status of my order again")) == ("lookup_order", {"order_id": "12345"})


def test_a_refund_that_was_made_is_not_made_a_second_time(refund):
    refund.gets(REFUND)
    assert "already made" in said(refund.says("I want my money back for order 12345"))


def test_the_amount_is_what_the_user_names(chat):
    chat.says("Please refund 20 euros for order 12345, the lamp is scratched")
    assert called(chat.gets(ORDER)) == ("process_refund", {"order_id": "12345", "amount": "20"})


@pytest.mark.parametrize(
    "text",
    [
        "Refund order 12345",
        "Order #12345 is broken. Please refund it!",
        "Can I get a refund for order number 12345?",
        "I'd like to return my lamp, order no. 12345",
    ],
)
def test_a_refund_is_understood_in_other_words(chat, text):
    assert called(chat.says(text)) == ("lookup_order", {"order_id": "12345"})
    assert called(chat.gets(ORDER)) == ("process_refund", {"order_id": "12345", "amount": "49.90"})


def test_another_orders_total_is_never_refunded(chat):
    chat.says("Where is order 777?")
    chat.gets({"order_id": "777", "status": "delivered", "total": "10.00"})
    assert called(chat.says("I want my money back for order 12345")) == ("lookup_order", {"order_id": "12345"})
    assert called(chat.gets(ORDER))[1]["amount"] == "49.90"


def test_an_amount_that_a_person_changed_is_reported_as_changed(refund):
    note = '[A person changed this call. The arguments used were {"amount":"30.00","order_id":"12345"}]\n'
    assert "refund of 30.00 for order 12345 was made" in said(refund.gets(note + '{"refund_id":"R-2"}'))


def test_an_order_that_is_refunded_already_is_left_alone(chat):
    chat.says("Please refund order 777")
    assert "refunded" in said(chat.gets({"order_id": "777", "status": "refunded", "total": "10.00"}))


# Declined, expired, unknown, failed


@pytest.mark.parametrize(
    "result",
    [
        {"status": "rejected", "message": "A person declined this call: the warranty has run out"},
        {"status": "rejected", "reason": "the warranty has run out"},
        "A person declined this call; it was not run. Their reason: the warranty has run out",
    ],
)
def test_a_declined_refund_is_told_with_its_reason_and_not_tried_again(refund, result):
    text = said(refund.gets(result))
    assert "not approved" in text
    assert "“the warranty has run out”" in text


@pytest.mark.parametrize(
    "result",
    [
        {"status": "rejected", "message": "A person declined this call."},
        {"status": "rejected"},
        "A person declined this call; it was not run. Do not make the same call again.",
    ],
)
def test_a_declined_refund_without_a_reason_quotes_none(refund, result):
    text = said(refund.gets(result))
    assert "not approved" in text
    assert "reason" not in text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"status": "expired", "message": "Nobody decided in time."}, "nobody decided"),
        ("Nobody decided in time; the call was not run.", "nobody decided"),
        ({"status": "unknown", "message": "It may have happened."}, "I cannot tell whether"),
        ("Nobody knows how this call ended: it may have happened.", "I cannot tell whether"),
        ({"status": "cancelled", "message": "The turn was cancelled."}, "was cancelled and not carried out"),
        ({"status": "failed", "message": "The bank is closed."}, "did not work. The bank is closed."),
        ({"error": {"code": "tool_error", "message": "The bank is closed."}}, "did not work. The bank is closed."),
        ("Error: the bank is closed", "did not work. The bank is closed."),
        ("The tool ran and failed (ValueError).", "did not work."),
    ],
)
def test_a_refund_that_was_not_made_is_told_as_it_is(refund, result, words):
    text = said(refund.gets(result))
    assert words in text
    assert "was made" not in text


def test_a_new_message_may_ask_for_a_declined_refund_again(refund):
    refund.gets({"status": "rejected"})
    assert called(refund.says("Please try the refund again"))[0] == "process_refund"


def test_a_refund_of_unknown_outcome_is_not_asked_for_again(refund):
    refund.gets({"status": "unknown", "message": "It may have happened."})
    assert "I cannot tell whether" in said(refund.says("I want my money back"))


def test_a_persons_words_in_place_of_a_result_are_repeated_not_believed(refund):
    text = said(refund.gets("We will send you a voucher instead."))
    assert "We will send you a voucher instead." in text
    assert "was made" not in text


def test_agreeing_to_the_offer_after_a_decline_opens_a_ticket(refund):
    refund.gets({"status": "rejected", "reason": "too late"})
    name, arguments = called(refund.says("yes please"))
    assert name == "create_ticket"
    assert arguments["description"] == BROKEN


# Look-ups


def test_an_order_that_is_not_found_is_said_to_be_missing(chat):
    chat.says("My order 999 arrived broken, I want my money back")
    text = said(chat.gets({"status": "failed", "message": "Order 999 was not found."}))
    assert "could not look up order 999. Order 999 was not found." in text


def test_a_corrected_order_number_goes_on_with_the_refund(chat):
    chat.says("My order 999 arrived broken, I want my money back")
    chat.gets("Order 999 not found")
    assert called(chat.says("sorry, it is 12345")) == ("lookup_order", {"order_id": "12345"})
    assert called(chat.gets(ORDER))[0] == "process_refund"


def test_a_cancelled_order_is_a_result_and_no_failed_call(chat):
    chat.says("Where is order 12345?")
    assert "cancelled" in said(chat.gets({"order_id": "12345", "status": "cancelled", "message": "by you"}))


@pytest.mark.parametrize("text", ["Where is my order 12345?", "12345", "status of order 12345"])
def test_an_order_number_is_looked_up(chat, text):
    assert called(chat.says(text)) == ("lookup_order", {"order_id": "12345"})


def test_a_broken_order_without_a_wish_is_looked_up_and_a_refund_offered(chat):
    chat.says("My order 12345 arrived broken")
    assert "I can also process a refund for you" in said(chat.gets(ORDER))
    assert called(chat.says("yes")) == ("process_refund", {"order_id": "12345", "amount": "49.90"})


def test_what_the_context_says_fills_an_argument(chat):
    chat = Chat(*SUPPORT, system='You help.\n\nContext of this task:\n{"order_id":"12345"}')
    assert called(chat.says("what is the status of my order?")) == ("lookup_order", {"order_id": "12345"})


# Asking, greeting, tickets


def test_a_missing_order_number_is_asked_for_and_the_answer_used(chat):
    assert said(chat.says("I want my money back")) == (
        "To process a refund, I still need the order id. Could you tell me?"
    )
    assert called(chat.says("12345")) == ("lookup_order", {"order_id": "12345"})
    assert called(chat.gets(ORDER))[0] == "process_refund"


def test_an_amount_that_nothing_tells_is_asked_for(chat):
    chat.says(BROKEN)
    text = said(chat.gets({"order_id": "12345", "status": "delivered"}))
    assert "I still need the amount" in text
    assert called(chat.says("15.50")) == ("process_refund", {"order_id": "12345", "amount": "15.50"})


def test_thanking_ends_the_asking(chat):
    chat.says("I want my money back")
    assert said(chat.says("no thanks")) == "All right, I will leave it at that."


@pytest.mark.parametrize(
    "text",
    [
        "I want to talk to a human about order 12345",
        "I have a complaint about your courier",
        "Please open a ticket for me",
    ],
)
def test_who_wants_a_person_gets_a_ticket(chat, text):
    name, arguments = called(chat.says(text))
    assert name == "create_ticket"
    assert arguments["subject"]
    assert arguments["description"] == text


def test_a_long_complaint_has_a_short_subject(chat):
    text = "I have a complaint: " + "the courier threw the parcel over the fence " * 10
    arguments = called(chat.says(text))[1]
    assert len(arguments["subject"]) <= 61
    assert arguments["description"] == text.strip()


@pytest.mark.parametrize("text", ["Hello", "Hi there!", "Good morning", "help"])
def test_a_greeting_is_answered_with_what_can_be_done(chat, text):
    answer = said(chat.says(text))
    assert all(name in answer for name in ("lookup_order", "process_refund", "create_ticket"))


def test_what_is_not_understood_is_admitted(chat):
    assert "I do not know how to help with that" in said(chat.says("colourless green ideas sleep"))


def test_a_question_is_answered_from_knowledge_in_the_prompt():
    chat = Chat(*SUPPORT, system="You are an agent. Refunds take five working days. Shipping is free.")
    assert "Refunds take five working days." in said(chat.says("How long do refunds take?"))


def test_an_agent_without_tools_answers_from_what_it_was_told():
    chat = Chat()
    said(chat.says("My name is Ada."))
    assert "Ada" in said(chat.says("What is my name?"))


# Agents it has never heard of


def test_a_lead_is_qualified_from_one_sentence():
    reply = Chat(*SALES).says("Qualify the lead Acme Corp with 200 employees and a budget of $60,000")
    assert called(reply) == ("qualify_lead", {"company_name": "Acme Corp", "company_size": "200", "budget": 60000})


def test_a_quote_takes_the_lead_from_the_earlier_result():
    chat = Chat(*SALES)
    chat.says("Qualify the lead Acme Corp with 200 employees and a budget of $60,000")
    chat.gets({"lead_id": "L-1", "score": "high"})
    reply = chat.says('Create a quote for $12,500 with the products "Gold plan" and "Support"')
    assert called(reply) == (
        "create_quote",
        {"lead_id": "L-1", "amount": "12500", "products": ["Gold plan", "Support"]},
    )


def test_what_a_quote_lacks_is_asked_for_then_taken_from_the_answer():
    chat = Chat(*SALES)
    assert "the lead id and the products" in said(chat.says("Create a quote for $500,000 deal"))
    assert called(chat.says("lead L-9, products: Alpha, Beta and Gamma")) == (
        "create_quote",
        {"lead_id": "L-9", "amount": "500000", "products": ["Alpha", "Beta", "Gamma"]},
    )


def test_values_are_collected_over_several_answers():
    chat = Chat(*SALES)
    for text in ("Please qualify a new lead", "Acme Corp", "200 employees"):
        said(chat.says(text))
    assert called(chat.says("60000"))[1] == {"company_name": "Acme Corp", "company_size": "200", "budget": 60000}


def test_a_meeting_has_a_date_and_a_duration_in_minutes():
    reply = Chat(*SALES).says("Schedule a meeting with lead L-7 on 2027-03-01 for 1 hour")
    assert called(reply) == ("schedule_meeting", {"lead_id": "L-7", "date": "2027-03-01", "duration": 60})


def test_a_choice_and_a_place_are_found():
    weather = tool(
        "get_weather",
        "Get the weather of a city",
        city=str,
        unit=(Literal["celsius", "fahrenheit"], "celsius"),
    )
    assert called(Chat(weather).says("What is the weather in Paris in Fahrenheit?")) == (
        "get_weather",
        {"city": "Paris", "unit": "fahrenheit"},
    )


def test_numbers_fill_numbers_in_their_order():
    add = tool("add", "Add two numbers", a=int, b=int)
    assert called(Chat(add).says("add 3 and 4")) == ("add", {"a": 3, "b": 4})


def test_an_email_has_address_subject_and_body():
    send = tool("send_email", "Send an e-mail", to_email=str, subject=str, body=str)
    assert called(Chat(send).says("Send an email to bob@example.org with subject: Hi, body: See you")) == (
        "send_email",
        {"to_email": "bob@example.org", "subject": "Hi", "body": "See you"},
    )


def test_a_search_takes_any_question():
    search = tool("search_docs", "Search the documentation", query=str)
    question = "How long does shipping take?"
    assert called(Chat(search).says(question)) == ("search_docs", {"query": question})


def test_an_id_that_is_a_number_is_passed_as_one():
    cancel = tool("cancel_order", "Cancel an order", order_id=int)
    chat = Chat(cancel)
    assert called(chat.says("cancel order 55")) == ("cancel_order", {"order_id": 55})
    assert said(chat.gets({"order_id": 55, "status": "cancelled"})) == "Order 55 was cancelled."


# The provider


def test_the_same_request_has_the_same_answer(chat):
    chat.says(BROKEN)
    assert DemoProvider().complete(chat.request()) == DemoProvider().complete(chat.request())


def test_a_stream_gives_the_answer_word_by_word(chat):
    chat.says("Hello")
    request = ModelRequest(model="support", messages=tuple(chat.messages[:-1]), tools=SUPPORT)
    *deltas, reply = DemoProvider().stream(request)
    assert isinstance(reply, ModelReply)
    assert len(deltas) > 10
    assert "".join(delta.text for delta in deltas if isinstance(delta, ModelDelta)) == reply.content


def test_usage_is_estimated_from_the_length():
    request = ModelRequest(model="support", messages=(Message(role="user", content="x" * 400),))
    reply = DemoProvider().complete(request)
    assert reply.usage.input_tokens == 100
    assert reply.usage.output_tokens == len(reply.content or "") // 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(text=st.text(max_size=200), result=JSON | st.text(max_size=200))
def test_no_text_and_no_result_makes_it_fail_or_repeat_itself(text, result):
    chat = Chat(*SUPPORT, *SALES)
    reply, calls = chat.says(f"{BROKEN} {text}"), []
    while reply.tool_calls:
        assert called(reply) not in calls
        calls.append(called(reply))
        reply = chat.gets(result)
    assert said(reply)
