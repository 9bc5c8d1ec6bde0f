"""The sales agent: qualifies leads, meets them, and quotes; large quotes are approved by a person."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from agentcore import ToolContext, ToolError, agent, tool
from project.models import Lead, Meeting, Quote, in_cents

MIN_BUDGET = Decimal(5_000)
# Quotes above it go to a person first.
FREE_QUOTE = Decimal(10_000)

LeadId = Annotated[str, Field(description="The lead ID, as in L-1", max_length=20)]
Money = Annotated[Decimal, Field(gt=0, max_digits=10, decimal_places=2)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


def is_large(arguments: dict[str, Any], ctx: ToolContext) -> bool:
    """Say whether a quote needs a person's approval."""
    return bool(arguments["amount"] > FREE_QUOTE)


@agent(
    name="sales-agent",
    description="Sales agent for qualifying leads and preparing quotes",
    system_prompt=(
        "You are a friendly sales agent. Qualify a lead before you quote or meet. "
        f"Quotes above {FREE_QUOTE} are approved by a person."
    ),
)
class SalesAgent:
    @tool(description="Qualify a lead based on company size and budget", idempotent=True)
    def qualify_lead(self, company_name: Text, company_size: Text, budget: Money, ctx: ToolContext) -> dict[str, Any]:
        lead, _ = Lead.objects.get_or_create(
            call_id=ctx.call_id,
            defaults={
                "company_name": company_name,
                "company_size": company_size,
                "budget": budget,
                "is_qualified": budget >= MIN_BUDGET,
            },
        )
        return {"lead_id": str(lead), "company_name": lead.company_name, "qualified": lead.is_qualified}

    @tool(description="Create a sales quote", requires_approval=is_large, idempotent=True)
    def create_quote(
        self, lead_id: LeadId, amount: Money, products: Annotated[list[str], Field(min_length=1)], ctx: ToolContext
    ) -> dict[str, Any]:
        quote, _ = Quote.objects.get_or_create(
            call_id=ctx.call_id,
            defaults={
                "lead": _lead(lead_id),
                "amount": amount,
                "products": products,
                "approved_by": ", ".join(ctx.approved_by),
            },
        )
        return {"quote_id": str(quote), "lead_id": lead_id, "amount": in_cents(quote.amount)}

    @create_quote.preview
    def _(self, lead_id: str, amount: Decimal, products: list[str]) -> str:
        lead = _find_lead(lead_id)
        who = f"{lead.company_name} (budget {lead.budget})" if lead else f"an unknown lead, {lead_id}"
        return f"Offers {', '.join(products)} to {who} for {in_cents(amount)}."

    @tool(description="Schedule a meeting with a lead", idempotent=True)
    def schedule_meeting(
        self,
        lead_id: LeadId,
        date: Annotated[str, Field(description="Day and time", min_length=1, max_length=100)],
        duration: Annotated[int, Field(description="Minutes", ge=5, le=480)],
        ctx: ToolContext,
    ) -> dict[str, Any]:
        meeting, _ = Meeting.objects.get_or_create(
            call_id=ctx.call_id, defaults={"lead": _lead(lead_id), "date": date, "minutes": duration}
        )
        return {"meeting_id": str(meeting), "lead_id": lead_id, "date": meeting.date, "duration": meeting.minutes}


def _find_lead(lead_id: str) -> Lead | None:
    number = lead_id.upper().removeprefix("L-")
    return Lead.objects.filter(pk=int(number)).first() if number.isascii() and number.isdigit() else None


def _lead(lead_id: str) -> Lead:
    found = _find_lead(lead_id)
    if found is None:
        raise ToolError(f"There is no lead {lead_id!r}. Qualify the lead first; that gives its ID.")
    return found
