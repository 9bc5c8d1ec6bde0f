from django.db import migrations, models

INDEX = models.Index(fields=["agent", "state", "completed_at"], name="desk_turn_by_agent")


def add(apps, schema_editor):
    schema_editor.add_index(apps.get_model("agentcore", "AgentContext"), INDEX)


def remove(apps, schema_editor):
    schema_editor.remove_index(apps.get_model("agentcore", "AgentContext"), INDEX)


class Migration(migrations.Migration):
    dependencies = [("desk", "0001_initial"), ("agentcore", "0001_initial")]
    operations = [migrations.RunPython(add, remove, atomic=False)]
