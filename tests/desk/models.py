from django.db import models

from agentcore.models import AgentSession


class Ticket(models.Model):
    session = models.OneToOneField(AgentSession, on_delete=models.CASCADE, related_name="ticket")
    number = models.CharField(max_length=32, unique=True)
    priority = models.PositiveSmallIntegerField(default=3)
    last_answer_at = models.DateTimeField(null=True, blank=True)
    total_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        indexes = (models.Index(fields=("priority", "last_answer_at"), name="desk_ticket_queue"),)

    def __str__(self) -> str:
        return self.number
