"""Erase a user's data: the content of their sessions and turns, and what other stores hold of them.

What happened, when, and the digests of it stay, so that the log can still be checked. In the user's place stands a
pseudonym. A turn under way is cancelled first.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.crypto import salted_hmac

from agentcore import canonical, clock, database, erasers
from agentcore.approvals import ending, history
from agentcore.conf import WAIT
from agentcore.erasers import Owner
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import InvalidInput, NotFound
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    Erasure,
    RateCount,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.turns import emptying, inputs

logger = logging.getLogger("agentcore.keeping")

# Turns per transaction.
TURNS = 50
POLL_SECONDS = 0.2
# Of these events the data says nothing about a user.
OF_THE_SESSION = (
    EventType.SESSION_STARTED,
    EventType.SESSION_ARCHIVED,
    EventType.SESSION_TRIMMED,
    EventType.SESSION_ERASED,
)


@dataclass(frozen=True, kw_only=True)
class ErasureReport:
    """What was erased: how many rows and things by kind, and what could not be erased yet.

    `running` are the execution ids of turns that a worker still has; `failed` says why a store could not be reached.
    """

    pseudonym: str
    counts: dict[str, int]
    running: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.running and not self.failed


def erase(user: Any, *, by: str = "", wait: float = 30) -> ErasureReport:
    """Erase the data of a user, or of the key of one who was deleted; `by` is for the record.

    Active turns are cancelled; `wait` seconds are given to those that a worker has. What could not be done is in the
    report: call it again then, it goes on where it stopped. Raises RuntimeError inside an open transaction.
    """
    if database.is_in_transaction():
        raise RuntimeError(
            "erase() cannot run inside an open transaction: it commits by session and waits for workers."
        )
    key = key_of(user)
    inputs.require("wait", wait, WAIT)
    erasure = _begin(key, by)
    counts, until = Counter[str](), time.monotonic() + wait
    while running := _erase_sessions(key, erasure, counts):
        if time.monotonic() >= until:
            break
        database.release_connection()
        time.sleep(POLL_SECONDS)
    failed = _erase_elsewhere(key, erasure, counts)
    return _end(erasure, counts, tuple(running), failed)


def found(user: Any) -> dict[str, int]:
    """Return how many rows `erase` would take the content of, by kind; nothing is changed."""
    key = key_of(user)
    sessions = _sessions_of(key)
    turns = [pk for session_pk in _sessions_with(key) for pk in _turns_of(session_pk, key, session_pk in sessions)]
    counts = Counter(sessions=len(sessions), turns=len(turns))
    for part in _parts(turns):
        counts["steps"] += AgentStep.objects.filter(turn__in=part).count()
        counts["tool calls"] += ToolCall.objects.filter(turn__in=part).count()
        counts["tool approvals"] += ToolApproval.objects.filter(turn__in=part).count()
        counts["events"] += SessionEvent.objects.filter(turn__pk__in=part, data__isnull=False).count()
    return dict(counts)


def was_erased(user: Any) -> list[Erasure]:
    """Return the record of the erasures of a user's data, newest first."""
    return list(Erasure.objects.filter(subject_digest=_digest(key_of(user))))


def key_of(user: Any) -> str:
    """Return the key that rows keep of a user; raise InvalidInput for what is neither a stored user nor a key."""
    model: Any = get_user_model()
    key = user.pk if isinstance(user, model) else user
    if isinstance(key, (str, int, UUID)) and not isinstance(key, bool) and key != "":
        try:
            found = str(model._meta.pk.to_python(key))
        except ValidationError:
            pass
        else:
            if not canonical.has_unstorable_text(found):
                return found
    shape = model._meta.pk.get_internal_type()
    raise InvalidInput(
        f"user must be a stored user, or the primary key ({shape}) of one who was deleted; a name is none.",
        field="user",
    )


def _begin(key: str, by: str) -> Erasure:
    """Return the user's erasure that is under way, also in another process, or a new one."""
    digest = _digest(key)
    under_way = Erasure.objects.filter(active_digest=digest)
    while (erasure := under_way.first()) is None:
        begun = Erasure(subject_digest=digest, active_digest=digest, by=by[:255], started_at=clock.now())
        Erasure.objects.bulk_create([begun], ignore_conflicts=True)
    found: Erasure = erasure
    return found


def _digest(key: str) -> str:
    """Return what the record keeps of a user: only who has the project's SECRET_KEY and the key can make it."""
    return salted_hmac("agentcore.erasure", key, algorithm="sha256").hexdigest()


@database.retried
def _end(erasure: Erasure, counts: Counter[str], running: tuple[str, ...], failed: dict[str, str]) -> ErasureReport:
    row = Erasure.objects.filter(pk=erasure.pk)
    with database.atomic():
        # Written first: that is the lock, on every database, and another may have ended it too.
        row.update(subject_digest=erasure.subject_digest)
        total = Counter(row.values_list("counts", flat=True).get()) + counts
        row.update(counts=dict(total))
        if not running and not failed:
            row.update(completed_at=clock.now(), active_digest=None)
    done = {kind: number for kind, number in total.items() if number}
    return ErasureReport(pseudonym=erasure.pseudonym, counts=done, running=running, failed=failed)


def _erase_sessions(key: str, erasure: Erasure, counts: Counter[str]) -> list[str]:
    """Erase what can be erased now; return the execution ids of the turns that kept something from it."""
    running: list[str] = []
    for session_pk in _sessions_with(key):
        for turn in _active(session_pk, key):
            ending.cancel_turn(turn)
        try:
            running += _erase_all_of(session_pk, key, erasure, counts)
        except NotFound:
            continue
    return running


def _erase_all_of(session_pk: int, key: str, erasure: Erasure, counts: Counter[str]) -> list[str]:
    """Erase a session's turns, a part at a time, and then the session; return the active turns that it met."""
    goes_on, active = True, list[str]()
    while goes_on:
        done, goes_on, active = _erase_part(session_pk, key, erasure)
        counts.update(done)
    return active


@database.retried
def _erase_part(session_pk: int, key: str, erasure: Erasure) -> tuple[Counter[str], bool, list[str]]:
    """Return what was done, whether there is more to do at once, and the turns that are to end first."""
    with log.writing(session_pk, touches=False) as journal:
        is_own = journal.session.user_key == key
        # Looked at under the lock: a turn may have begun since they were cancelled, and have ended soon after.
        if active := [str(turn.execution_id) for turn in _active(session_pk, key)]:
            return Counter(), False, active
        left = list(_turns_of(session_pk, key, is_own))
        if not left:
            return (_erase_session(journal, erasure) if is_own else Counter()), False, []
        done = _erase_turns(journal, left[:TURNS], key, erasure)
        journal.append(EventType.SESSION_ERASED, erasure=erasure.pseudonym, turns=len(left[:TURNS]))
        return done, True, []


def _erase_turns(journal: Journal, turns: Sequence[int], key: str, erasure: Erasure) -> Counter[str]:
    noted = history.forget_notes(ToolApproval.objects.filter(turn__in=turns).prefetch_related("decisions"))
    counts = Counter(emptying.empty(turns, now=journal.now))
    counts["history entries"] += noted
    counts["notes"] += emptying.empty_notes(turns)
    pseudonym = erasure.pseudonym
    mine = _exact(AgentContext.objects.filter(pk__in=turns), "user_key", key)
    AgentContext.objects.filter(pk__in=mine).update(user=None, user_key=pseudonym, user_name=pseudonym)
    asked = _exact(ToolApproval.objects.filter(turn__in=turns), "requester_key", key)
    ToolApproval.objects.filter(pk__in=asked).update(
        requester=None, requester_key=pseudonym, requester_name=pseudonym, updated_at=journal.now
    )
    decided = _exact(ApprovalDecision.objects.filter(approval__turn__in=turns), "actor_key", key)
    ApprovalDecision.objects.filter(pk__in=decided).update(actor=None, actor_key=pseudonym, actor_name=pseudonym)
    UserQuestion.objects.filter(turn__in=turns).exclude(answered_by="").update(answered_by=pseudonym)
    return counts


def _erase_session(journal: Journal, erasure: Erasure) -> Counter[str]:
    session = AgentSession.objects.filter(pk=journal.session.pk)
    events = SessionEvent.objects.filter(session=journal.session, data__isnull=False).exclude(type__in=OF_THE_SESSION)
    counts = Counter(sessions=1, events=events.update(data=None))
    session.update(
        title="",
        metadata={},
        driver_session_id="",
        user=None,
        user_key=erasure.pseudonym,
        user_name=erasure.pseudonym,
        deleted_at=journal.session.deleted_at or journal.now,
        erased_at=journal.now,
    )
    journal.append(EventType.SESSION_ERASED, erasure=erasure.pseudonym, turns=0)
    return counts


def _erase_elsewhere(key: str, erasure: Erasure, counts: Counter[str]) -> dict[str, str]:
    """Have every other store erase; one that fails does not keep the others from it."""
    counts["rate counts"] += _erase_rates(key)
    owner, failed = _owner(key, erasure), {}
    for name, eraser in erasers.registered().items():
        try:
            counts[name] += eraser(owner)
        except Exception as error:
            logger.exception("A store could not erase a user's data; erase again", extra={"store": name})
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def _owner(key: str, erasure: Erasure) -> Owner:
    names = (key, erasure.pseudonym)
    sessions = [pk for name in names for pk in _exact(AgentSession.objects.filter(user_key=name), "user_key", name)]
    turns = {pk for name in names for pk in _exact(AgentContext.objects.filter(user_key=name), "user_key", name)}
    for part in _parts(sessions):
        turns.update(AgentContext.objects.filter(session__in=part).values_list("pk", flat=True))
    return Owner(key=key, sessions=tuple(sorted(sessions)), turns=tuple(sorted(turns)))


def _erase_rates(key: str) -> int:
    """Forget how often the user did what is limited."""
    own_turns = RateCount.objects.filter(digest=canonical.text_digest(f"turns:{key}")).delete()[0]
    of_tools = RateCount.objects.filter(name__startswith="tool:", name__endswith=f":{key}").values_list("pk", "name")
    mine = [pk for pk, name in of_tools if name.endswith(f":{key}")]
    return int(own_turns + RateCount.objects.filter(pk__in=mine).delete()[0])


def _sessions_with(key: str) -> list[int]:
    """Return the sessions that hold something of a user's, theirs or not."""
    turns: Any = AgentContext.objects.filter(user_key=key).order_by().values_list("session", "user_key").distinct()
    return sorted({pk for pk, held in turns if held == key} | _sessions_of(key))


def _sessions_of(key: str) -> set[int]:
    return set(_exact(AgentSession.objects.filter(user_key=key), "user_key", key))


def _turns_of(session_pk: int, key: str, is_own: bool) -> Iterator[int]:
    """Yield the turns of a session that are still to be erased: all of an own one, else the user's."""
    turns = AgentContext.objects.filter(session=session_pk).order_by("pk")
    wanted = turns.filter(Q(erased_at=None) | Q(user_key=key)) if is_own else turns.filter(user_key=key)
    for pk, found_key, erased_at in wanted.values_list("pk", "user_key", "erased_at"):
        if found_key == key or (is_own and erased_at is None):
            yield pk


def _active(session_pk: int, key: str) -> list[AgentContext]:
    """Return the session's active turn, if it is the user's or in a session of theirs."""
    active = AgentContext.objects.filter(active_session=session_pk).select_related("session")
    return [turn for turn in active if key in (turn.user_key, turn.session.user_key)]


def _exact(rows: Any, field: str, value: str) -> list[int]:
    """Return the keys of the rows that hold just this text: MariaDB takes others for the same."""
    return [pk for pk, held in rows.filter(**{field: value}).order_by().values_list("pk", field) if held == value]


def _parts(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), emptying.AT_ONCE):
        yield keys[start : start + emptying.AT_ONCE]
