"""The verbs of the runtime that keep a project going: recovery, the periodic work, how long data lives, its numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentcore.approvals import ending, reminders, routing
from agentcore.conf import WAIT, settings
from agentcore.engine import draining, health, metrics, remembering, twins
from agentcore.keeping import archiving, erasure, retention
from agentcore.keeping.erasure import ErasureReport
from agentcore.resilience import rate_limit
from agentcore.state import leftovers
from agentcore.turns import inputs, recovery

# So many sessions one tick archives or trims: the next one follows soon.
KEPT_PER_TICK = 100


class Upkeep:
    """What operators, cron and monitoring call of the runtime."""

    def archive_idle(self, days: float | None = None, *, limit: int | None = None) -> int:
        """Archive the sessions untouched for `days` (ARCHIVE_AFTER_DAYS) without an active turn; return how many."""
        return archiving.archive_idle(settings.ARCHIVE_AFTER_DAYS if days is None else days, limit=limit)

    def trim(self, days: float, *, limit: int | None = None) -> dict[str, int]:
        """Remove the turns that ended more than `days` ago; return how many turns, events and sessions went.

        Their part of the log is a beginning of it; the rest is still proved. Turns that people decided about stay as
        emptied rows, for the record. Metrics count them first.
        """
        metrics.catch_up()
        done = retention.trim(days, limit=limit)
        return {kind: done[kind] for kind in ("turns", "events", "sessions")}

    def erase(self, user: Any, *, by: str = "", wait: float = 30) -> ErasureReport:
        """Erase the data of a user, or of the key of one who was deleted; the report says what is not done yet.

        Active turns are cancelled; `wait` seconds are given to those that a worker has. Call it again where the
        report is not complete. Raises RuntimeError inside an open transaction.
        """
        return erasure.erase(user, by=by, wait=wait)

    def recover(self, *, everything: bool = False) -> dict[str, int]:
        """Take up what a dead worker or broker left: `{"taken_over", "sent_again"}` say how many turns.

        `everything` does not wait for leases to run out: only for a process that knows it is the only one.
        """
        taken_over = recovery.settle_all_working() if everything else recovery.settle_abandoned()
        sent_again = recovery.send_queued() if everything else recovery.send_overdue()
        return {"taken_over": taken_over, "sent_again": sent_again}

    def tick(self) -> dict[str, int]:
        """Do the periodic work once: recover, expire what nobody decided, remind, find what nobody may decide.

        Forgets memories whose time is over, sums up metrics and tidies, too; archives with AUTO_ARCHIVE, and with
        RETENTION_DAYS removes what is older. Remembers turns whose workers died when they were completed.
        """
        rate_limit.forget_old()
        done = {
            **self.recover(),
            "expired": ending.expire_due(),
            "reminded": reminders.remind_due(),
            "unroutable": routing.look_again(),
            "forgotten": remembering.forget_over(),
        }
        metrics.keep_up()
        leftovers.let_end()
        # At the end: it may ask models.
        return {**done, **self._keep(), "remembered": remembering.remember_left()}

    def shutdown(self, timeout: float = 30) -> bool:
        """Take no more turns in this process and give those in hand back at the end of their call.

        Waits for that for up to `timeout` seconds; says whether none is left. Raises InvalidInput for what is no time.
        """
        inputs.require("timeout", timeout, WAIT)
        draining.start()
        return draining.in_hand.wait_for_none(timeout)

    def metrics(self) -> dict[str, Any]:
        """Return what was done since the last reset, in all processes: `{"executions", "performance", …}`.

        Durations are in seconds of work; what has no data is None. Raises Unavailable with METRICS off.
        """
        return metrics.report()

    def reset_metrics(self) -> datetime:
        """Count from now on, in all processes; return the time that is."""
        return metrics.reset()

    def health(self) -> dict[str, Any]:
        """Return `{"status": healthy, degraded or unhealthy, "checked_at", "parts"}`."""
        return health.report()

    aarchive_idle = twins.short(archive_idle)
    atrim = twins.short(trim)
    aerase = twins.long(erase)
    arecover = twins.short(recover)
    atick = twins.short(tick)
    ashutdown = twins.long(shutdown)
    ametrics = twins.short(metrics)
    areset_metrics = twins.short(reset_metrics)
    ahealth = twins.long(health)

    def _keep(self) -> dict[str, int]:
        """Archive and remove what the settings say, a part of it at a time."""
        days = settings.RETENTION_DAYS
        return {
            "archived": self.archive_idle(limit=KEPT_PER_TICK) if settings.AUTO_ARCHIVE else 0,
            "trimmed": 0 if days is None else retention.trim(days, limit=KEPT_PER_TICK)["turns"],
        }
