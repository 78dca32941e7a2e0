import tomllib
from pathlib import Path

from perdure.apps.settings.validation import faults_in

MINE = Path("/h/config.toml")


def faults(text: str, *, is_project: bool) -> tuple[str, ...]:
    return faults_in(tomllib.loads(text), text, MINE, is_project=is_project)


def test_error_about_a_project_setting_contains_the_user_settings_path() -> None:
    text = "[chat]\nturn_cap = 3\nmodel = 'a:b'\n"
    assert faults(text, is_project=False) == ()
    (fault,) = faults(text, is_project=True)
    assert fault.startswith("line 3: a project cannot set chat.model")
    assert fault.endswith(str(MINE))
