"""A few orders to talk about."""

from datetime import date
from decimal import Decimal
from typing import Any

from django.db import migrations

ORDERS = [
    ("12345", "customer", "Desk lamp", "delivered", Decimal("49.90"), date(2026, 11, 12)),
    ("12346", "customer", "Office chair", "shipped", Decimal("189.00"), date(2026, 11, 26)),
    ("12347", "another customer", "Coffee grinder", "processing", Decimal("74.50"), date(2026, 11, 29)),
    ("12348", "another customer", "Bookshelf", "delivered", Decimal("129.95"), date(2026, 10, 30)),
    ("12349", "another customer", "Door mat", "cancelled", Decimal("15.00"), date(2026, 11, 2)),
]


def add(apps: Any, schema_editor: Any) -> None:
    order_model = apps.get_model("project", "Order")
    orders = order_model._default_manager.using(schema_editor.connection.alias)
    for number, customer, item, status, total, placed_on in ORDERS:
        orders.get_or_create(
            number=number,
            defaults={"customer": customer, "item": item, "status": status, "total": total, "placed_on": placed_on},
        )


class Migration(migrations.Migration):
    dependencies = [("project", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
