import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = [("agentcore", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="Ticket",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.CharField(max_length=32, unique=True)),
                ("priority", models.PositiveSmallIntegerField(default=3)),
                ("last_answer_at", models.DateTimeField(blank=True, null=True)),
                ("total_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ticket",
                        to="agentcore.agentsession",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["priority", "last_answer_at"], name="desk_ticket_queue")],
            },
        ),
    ]
