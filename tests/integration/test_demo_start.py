"""How the demonstration starts: its users, the browsers they left open, and a data folder that cannot be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from project.users import make_customer, make_reviewer

ROOT = Path(__file__).resolve().parents[2]


def is_logged_in(client):
    return client.get("/reviews/").status_code != 302


@pytest.mark.django_db
def test_a_new_password_at_a_start_logs_no_open_browser_out():
    first, _ = make_reviewer(), make_customer()
    browser, stale = Client(), Client()
    assert stale.login(username="reviewer", password=first.password)
    user = get_user_model().objects.get(username="reviewer")
    user.set_password("another one")
    user.save()
    assert browser.login(username="reviewer", password="another one")
    second = make_reviewer()
    assert (second.password, second.token) != (first.password, first.token)
    assert is_logged_in(browser)
    # Whom an earlier change of the password logged out stays out.
    assert not is_logged_in(stale)
    assert not Client().login(username="reviewer", password="another one")
    assert Client().login(username="reviewer", password=second.password)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder in which nobody can make one")
def test_a_data_folder_that_cannot_be_made_is_named_in_one_line():
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "manage.py", "quickstart", "--no-browser", "--port", "0", "--data-dir", "/proc/x"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert "/proc/x" in line
