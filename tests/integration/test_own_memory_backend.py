"""The backend of the documentation, as it stands there: found by its dotted path, and used by a turn."""

import re
import sys
import types
from pathlib import Path

import pytest

from agentcore import runtime
from agentcore.memory import Item, Owner, Source, current
from agentcore.testing import make_user
from agentcore.testing.agents import TESTING_AGENT

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[2] / "docs/how-to/remember-users.md"


@pytest.fixture
def documented(settings, monkeypatch):
    [code] = re.findall(r"```python\n(from agentcore\.memory import Recalled\n.*?)```", PAGE.read_text(), re.DOTALL)
    module = types.ModuleType("documented_memory")
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "documented_memory", module)
    settings.AGENTCORE = {"MEMORY_BACKEND": "documented_memory.SharedWords"}


def test_the_documented_backend_finds_by_words_and_only_ones_own(documented, scripted):
    mine, theirs = make_user(), make_user()
    for user, text in ((mine, "The parcel is blue."), (theirs, "The parcel is secret."), (mine, "Tea at five.")):
        current().remember(Owner.of_user(user), [Item(kind="fact", text=text)], source=Source())
    provider = scripted(["Blue."])
    runtime.execute(TESTING_AGENT, "Which colour has the parcel", user=mine)
    shown = provider.requests[0].messages[0].content
    assert "The parcel is blue." in shown
    assert "secret" not in shown
    assert "Tea" not in shown
