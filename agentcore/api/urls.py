"""The routes of the API. Ids are text here: what is no id is answered as what does not exist."""

from django.urls import path

from agentcore.api import agents, approvals, events, health, knowledge, memories, metrics, schema, sessions, turns

app_name = "agentcore_api"

urlpatterns = [
    path("agents/", agents.AgentList.as_view(), name="agent-list"),
    path("agents/<str:name>/", agents.AgentDetail.as_view(), name="agent-detail"),
    path("agents/<str:name>/revisions/", agents.AgentRevisions.as_view(), name="agent-revisions"),
    path("sessions/", sessions.SessionList.as_view(), name="session-list"),
    path("sessions/<str:session_id>/", sessions.SessionDetail.as_view(), name="session-detail"),
    path("sessions/<str:session_id>/archive/", sessions.SessionArchive.as_view(), name="session-archive"),
    path("sessions/<str:session_id>/cancel/", sessions.SessionCancel.as_view(), name="session-cancel"),
    path("sessions/<str:session_id>/events/", events.SessionEvents.as_view(), name="session-events"),
    path("sessions/<str:session_id>/turns/", turns.TurnList.as_view(), name="turn-list"),
    path("turns/<str:execution_id>/", turns.TurnDetail.as_view(), name="turn-detail"),
    path("turns/<str:execution_id>/resume/", turns.TurnResume.as_view(), name="turn-resume"),
    path("approvals/", approvals.ApprovalList.as_view(), name="approval-list"),
    path("approvals/decide/", approvals.ApprovalDecideMany.as_view(), name="approval-decide"),
    path("approvals/<str:id>/", approvals.ApprovalDetail.as_view(), name="approval-detail"),
    path("approvals/<str:id>/approve/", approvals.ApprovalApprove.as_view(), name="approval-approve"),
    path("approvals/<str:id>/reject/", approvals.ApprovalReject.as_view(), name="approval-reject"),
    path("approvals/<str:id>/respond/", approvals.ApprovalRespond.as_view(), name="approval-respond"),
    path("memory/", memories.MemoryList.as_view(), name="memory-list"),
    path("memory/export/", memories.MemoryExport.as_view(), name="memory-export"),
    path("memory/search/", memories.MemorySearch.as_view(), name="memory-search"),
    path("memory/<str:memory_id>/", memories.MemoryDetail.as_view(), name="memory-detail"),
    path("knowledge/", knowledge.DocumentList.as_view(), name="document-list"),
    path("knowledge/<str:id>/", knowledge.DocumentDetail.as_view(), name="document-detail"),
    path("health/", health.Health.as_view(), name="health"),
    path("metrics/", metrics.Metrics.as_view(), name="metrics"),
    path("schema/", schema.Schema.as_view(), name="schema"),
]
