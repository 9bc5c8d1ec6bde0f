"""The support agent: looks orders up, opens tickets, and refunds what a person approves."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from django.db import transaction
from pydantic import Field

from agentcore import ToolContext, ToolError, agent, tool
from project.models import Order, Refund, Ticket, in_cents

OrderId = Annotated[str, Field(description="The order ID", min_length=1, max_length=20)]
Money = Annotated[Decimal, Field(gt=0, max_digits=10, decimal_places=2)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


@agent(
    name="support-agent",
    description="Customer support agent for handling tickets",
    system_prompt=(
        "You are a helpful customer support agent of a small shop. Look an order up before you act on it. "
        "Refund what the customer asks for, at most what the order cost; a person approves each refund. "
        "Open a ticket when a person has to take over. Never say that something was done before a tool said so."
    ),
)
class SupportAgent:
    @tool(description="Look up order information by order ID", idempotent=True)
    def lookup_order(self, order_id: OrderId) -> dict[str, Any]:
        order = _order(Order.objects.filter(number=order_id).first(), order_id)
        refunded = order.refunded
        return {
            "order_id": order.number,
            "status": "refunded" if refunded >= order.total else order.status,
            "item": order.item,
            "total": order.total,
            "refunded": refunded,
            "placed_on": order.placed_on,
        }

    # Idempotent: the call's id is the refund's key, so a second attempt finds the first one's row.
    @tool(description="Process a refund for an order", requires_approval=True, idempotent=True)
    def process_refund(self, order_id: OrderId, amount: Money, ctx: ToolContext) -> dict[str, Any]:
        with transaction.atomic():
            order = _order(Order.locked(order_id), order_id)
            refund = Refund.objects.filter(call_id=ctx.call_id).first()
            if refund is None:
                _require_refundable(order, amount)
                refund = Refund.objects.create(
                    call_id=ctx.call_id, order=order, amount=amount, approved_by=", ".join(ctx.approved_by)
                )
        return {"refund_id": str(refund), "order_id": order.number, "amount": in_cents(refund.amount)}

    @process_refund.preview
    def _(self, order_id: str, amount: Decimal) -> str:
        order = Order.objects.filter(number=order_id).first()
        if order is None:
            return f"There is no order {order_id}: this refund will fail."
        return (
            f"Pays {in_cents(amount)} back to {order.customer} for order {order.number} "
            f"({order.item}, {order.status}). The order cost {order.total}; {order.refunded} was paid back before."
        )

    @process_refund.links
    def _(self, order_id: str) -> Order | None:
        return Order.objects.filter(number=order_id).first()

    @tool(description="Create a support ticket for a person to handle", idempotent=True)
    def create_ticket(
        self,
        subject: Text,
        description: Annotated[str, Field(min_length=1, max_length=10_000)],
        ctx: ToolContext,
        priority: Literal["low", "normal", "high"] = "normal",
    ) -> dict[str, Any]:
        ticket, _ = Ticket.objects.get_or_create(
            call_id=ctx.call_id,
            defaults={
                "subject": subject,
                "description": description,
                "priority": priority,
                "requested_by": ctx.user.get_username() if ctx.user else "",
            },
        )
        return {"ticket_id": str(ticket), "priority": ticket.priority}


def _order(found: Order | None, order_id: str) -> Order:
    if found is None:
        raise ToolError(f"There is no order {order_id!r}. Ask the customer for the right order ID.")
    return found


def _require_refundable(order: Order, amount: Decimal) -> None:
    left = order.total - order.refunded
    if amount > left:
        raise ToolError(
            f"Order {order.number} cost {order.total}, and {order.refunded} was refunded already: "
            f"at most {left} can be refunded, not {in_cents(amount)}."
        )
