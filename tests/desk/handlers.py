from django.db.models import F

from agentcore import runtime
from agentcore.models import AgentContext
from desk.models import Ticket


def keep_up(event):
    turn = AgentContext.objects.get(execution_id=event.execution_id)
    Ticket.objects.filter(session_id=turn.session_id).update(
        last_answer_at=turn.completed_at,
        total_tokens=F("total_tokens") + turn.input_tokens + turn.output_tokens,
    )


runtime.on("turn.completed", keep_up)
