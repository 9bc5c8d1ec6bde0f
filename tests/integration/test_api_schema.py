"""The OpenAPI description: complete, valid, and of nothing but agentcore."""

import os
import subprocess
import sys

import pytest
from django.urls import reverse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from agentcore.api.schema import OwnSchema
from agentcore.api.urls import urlpatterns
from agentcore.testing import make_user
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db


def test_the_description_is_valid_and_made_without_a_warning():
    GENERATOR_STATS.reset()
    validate_schema(OwnSchema().get_schema(public=True))
    assert not GENERATOR_STATS


def test_every_route_is_described_under_a_tag_and_a_name_of_its_own():
    document = OwnSchema().get_schema(public=True)
    described = {path.replace("{", "").replace("}", "").split("/")[2] for path in document["paths"]}
    assert described == {str(route.pattern).split("/")[0] for route in urlpatterns} - {"schema"}
    assert len(document["paths"]) == len(urlpatterns) - 1
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(name.startswith("agentcore_") for name in names)
    assert all(len(operation["tags"]) == 1 for operation in operations)
    assert all("default" in operation["responses"] for operation in operations)


def test_the_description_is_served_as_json_or_yaml_to_who_is_logged_in():
    client = client_of(make_user())
    answer = client.get(reverse("agentcore_api:schema"))
    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.")
    assert answer.json()["info"]["title"] == "agentcore"
    assert "/api/sessions/{session_id}/turns/" in answer.json()["paths"]
    assert client.get("/api/schema/?format=yaml").content.startswith(b"openapi: 3.")
    anonymous = APIClient().get("/api/schema/")
    assert (anonymous.status_code, anonymous.json()["code"]) == (401, "not_authenticated")


def test_a_project_needs_no_setting_of_drf_for_it():
    code = (
        "from tests import settings; settings.REST_FRAMEWORK = {};"
        "import django; django.setup();"
        "from agentcore.api.schema import OwnSchema;"
        "print(len(OwnSchema().get_schema(public=True)['paths']))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(output.stdout) == len(urlpatterns) - 1
