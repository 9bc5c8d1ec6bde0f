"""The demonstration's agents: what their tools do to the shop's rows, and the story the demo tells."""

from decimal import Decimal
from importlib import import_module

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.test import modify_settings

from agentcore import ToolContext, ToolError, TurnState, runtime
from agentcore.agents.registry import registry
from agentcore.testing import make_user, run_turns
from agentcore.tools import schema

pytestmark = pytest.mark.django_db

BROKEN = "My order 12345 arrived broken, I want my money back"
AGENTS = ("support-agent", "sales-agent", "research-agent", "writing-agent")


@pytest.fixture(scope="module", autouse=True)
def _site(django_db_setup, django_db_blocker):
    """Add the demonstration site, which the tests' settings leave out, and take it away again."""
    with modify_settings(INSTALLED_APPS={"append": "project.apps.ProjectConfig"}), django_db_blocker.unblock():
        call_command("migrate", "project", verbosity=0)
        yield
        call_command("migrate", "project", "zero", verbosity=0)
        for model in [model for model in admin.site._registry if model._meta.app_label == "project"]:
            admin.site.unregister(model)
        for name in AGENTS:
            registry.unregister(name)


@pytest.fixture
def shop():
    return import_module("project.models")


@pytest.fixture
def support():
    return import_module("project.agents").SupportAgent()


@pytest.fixture
def sales():
    return import_module("project.agents").SalesAgent()


@pytest.fixture
def customer():
    return make_user("customer")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


def context(call_id="call-1", **fields):
    return ToolContext.for_testing(call_id=call_id, **fields)


def test_the_agents_are_there_with_their_tools():
    assert [agent.name for agent in runtime.agents() if agent.name in AGENTS] == sorted(AGENTS)
    assert set(runtime.tools("support-agent")) == {"lookup_order", "process_refund", "create_ticket"}
    assert set(runtime.tools("sales-agent")) == {"qualify_lead", "create_quote", "schedule_meeting"}
    assert set(runtime.tools("research-agent")) == {"search_research_notes"}
    assert set(runtime.tools("writing-agent")) == {"write_article"}


def test_a_refund_is_looked_up_asked_for_approved_and_paid_once(shop, customer, reviewer):
    result = runtime.execute("support-agent", BROKEN, user=customer)
    assert (result.state, [step.tool_calls[0].tool for step in result.steps]) == (
        TurnState.WAITING_FOR_APPROVAL,
        ["lookup_order", "process_refund"],
    )
    approval = runtime.pending_approvals(reviewer).get()
    assert approval.arguments == {"order_id": "12345", "amount": "49.90"}
    assert approval.preview.startswith("Pays 49.90 back to customer for order 12345 (Desk lamp, delivered).")
    assert shop.Refund.objects.count() == 0
    runtime.approve(approval.pk, reviewer)
    run_turns()
    refund = shop.Refund.objects.get()
    assert (refund.order.number, refund.amount, refund.approved_by) == ("12345", Decimal("49.90"), "reviewer")
    assert refund.call_id == approval.call.call_id
    assert "refund of 49.90 for order 12345 was made" in runtime.result(result.execution_id).response


def test_a_rejected_refund_pays_nothing(shop, customer, reviewer):
    result = runtime.execute("support-agent", BROKEN, user=customer)
    runtime.reject(runtime.pending_approvals(reviewer).get().pk, reviewer, reason="the warranty has run out")
    run_turns()
    assert shop.Refund.objects.count() == 0
    assert "the warranty has run out" in runtime.result(result.execution_id).response


def test_a_repeated_call_finds_its_refund(shop, support):
    once, again = (support.process_refund("12345", Decimal("10.00"), context()) for _ in range(2))
    assert once == again
    assert shop.Refund.objects.count() == 1


def test_money_is_told_with_two_decimals(shop, support, sales):
    for number in range(10):
        assert (
            support.process_refund("12345", Decimal("0.1"), context(f"call-{number}"))["amount"].as_tuple().exponent
            == -2
        )
    told = support.lookup_order("12345")
    assert (str(told["refunded"]), str(told["total"])) == ("1.00", "49.90")
    assert "Pays 5.00 back" in runtime.tools("support-agent")["process_refund"].preview(support, "12345", Decimal(5))
    lead = sales.qualify_lead("Acme", "200 people", Decimal(20_000), context("lead"))["lead_id"]
    assert str(sales.create_quote(lead, Decimal(900), ["Lamp"], context("quote"))["amount"]) == "900.00"


def test_no_more_than_the_total_is_refunded(shop, support):
    support.process_refund("12345", Decimal("40.00"), context("call-1"))
    with pytest.raises(ToolError, match=r"at most 9\.90 can be refunded, not 10\.00"):
        support.process_refund("12345", Decimal("10.00"), context("call-2"))
    support.process_refund("12345", Decimal("9.90"), context("call-3"))
    assert shop.Order.objects.get(number="12345").refunded == Decimal("49.90")
    assert support.lookup_order("12345")["status"] == "refunded"


@pytest.mark.parametrize("amount", ["0", "-1", "1.005", "ten"])
def test_an_amount_is_money(amount):
    definition = runtime.tools("support-agent")["process_refund"]
    with pytest.raises(Exception, match="amount"):
        schema.validate_arguments(definition, {"order_id": "12345", "amount": amount})


def test_an_unknown_order_is_told_as_such(support):
    with pytest.raises(ToolError, match="no order 'x'"):
        support.lookup_order("x")
    with pytest.raises(ToolError, match="no order 'x'"):
        support.process_refund("x", Decimal(1), context())
    preview = runtime.tools("support-agent")["process_refund"].preview
    assert "this refund will fail" in preview(support, "x", Decimal(1))


def test_a_ticket_is_a_row_of_its_call(shop, support, customer):
    made = support.create_ticket("Broken lamp", "It flickers.", context(user=customer), "high")
    assert made == support.create_ticket("Broken lamp", "It flickers.", context(user=customer), "high")
    ticket = shop.Ticket.objects.get()
    assert (ticket.subject, ticket.priority, ticket.requested_by) == ("Broken lamp", "high", "customer")


def test_sales_qualify_then_quote_then_meet(shop, sales):
    lead = sales.qualify_lead("Acme", "200 people", Decimal(20_000), context("a"))["lead_id"]
    assert sales.create_quote(lead, Decimal(900), ["Desk lamp"], context("b"))["lead_id"] == lead
    assert sales.schedule_meeting(lead, "Friday 10:00", 30, context("c"))["duration"] == 30
    assert shop.Lead.objects.get().is_qualified
    assert (shop.Quote.objects.count(), shop.Meeting.objects.count()) == (1, 1)
    with pytest.raises(ToolError, match="Qualify the lead first"):
        sales.create_quote("L-0", Decimal(900), ["Desk lamp"], context("d"))


@pytest.mark.parametrize(("amount", "asks"), [("10000", False), ("10000.01", True)])
def test_only_a_large_quote_is_approved_first(customer, sales, amount, asks):
    lead = sales.qualify_lead("Acme", "200 people", Decimal(20_000), context("a"))["lead_id"]
    message = f"Please create a quote for lead {lead} over ${amount} for products: Desk lamp"
    result = runtime.execute("sales-agent", message, user=customer)
    assert (result.state == TurnState.WAITING_FOR_APPROVAL) is asks, result.response


LED_NOTE = "LED bulbs last about 15,000 hours, which is ten years at four hours a day."


def test_what_one_agent_finds_is_what_the_next_one_writes_about(customer):
    research = runtime.execute("research-agent", "Research LED bulbs", user=customer)
    assert [step.tool_calls[0].tool for step in research.steps[:-1]] == ["search_research_notes"]
    assert LED_NOTE in research.response
    article = runtime.execute(
        "writing-agent",
        "Write an article about LED bulbs",
        user=customer,
        initial_context={"research": research.response},
    )
    assert article.state == TurnState.COMPLETED
    assert [step.tool_calls[0].tool for step in article.steps[:-1]] == ["write_article"]
    assert article.steps[0].tool_calls[0].result == f"LED bulbs\n\n{research.response}"
    assert LED_NOTE in article.response


def test_without_findings_no_article_is_written(customer):
    article = runtime.execute("writing-agent", "Write an article about LED bulbs", user=customer)
    assert article.steps[0].tool_calls[0].status == "failed"
    assert "no findings" in article.response


def test_a_question_is_researched_too(customer):
    research = runtime.execute("research-agent", "How long do LED bulbs last?", user=customer)
    assert research.response.splitlines()[0] == LED_NOTE


def test_the_two_agents_can_be_run_by_a_command(capsys):
    call_command("research_and_write", "LED", "bulbs")
    told = capsys.readouterr().out
    found, written = told.split("writing-agent wrote:")
    assert LED_NOTE in found
    assert "LED bulbs\n\n" in written
    assert LED_NOTE in written


def test_the_research_agent_cites_this_projects_own_docs(customer):
    quickstart = import_module("project.management.commands.quickstart")
    quickstart.ingest_docs()
    research = runtime.execute("research-agent", "What does agentcore_verify check?", user=customer)
    assert research.state == TurnState.COMPLETED
    assert "docs/" in research.response
    assert "says:" in research.response
    assert {item.source.split("/")[0] for item in research.citations} == {"docs"}
    assert len(research.citations) == 5
