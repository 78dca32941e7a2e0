"""The settings that ``perdure flow run`` stores, and that ``resume`` uses again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from perdure.apps.chat.permissions import TypedPermissions, permissions_of
from perdure.apps.flow.roles import RoleOptions, role_agent
from perdure.apps.settings.document import commands_and_hosts
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import ScenarioNotFound, scenario_in
from perdure.client.agents.delegation.restriction import is_within
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.authority import authority_of
from perdure.client.store import Store
from perdure.engine.flows.lost_roles import lost_roles
from perdure.errors import TurnOpen
from perdure.models.scenario import CallTools, Scenario
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import RunSettings
from perdure.session.flows.run import FlowState
from perdure.tools.commands import ANY_COMMAND
from perdure.tools.permissions import Permissions

replace = msgspec.structs.replace


def new_settings(typed: RunSettings, environment: Mapping[str, str]) -> RunSettings:
    """Return the settings of a new flow; `typed` are the settings of the command line.

    If `typed` contains no commands, the commands in the user's settings are used; if `typed`
    contains no hosts, the hosts in the user's settings are used.

    Raises: ConfigError.
    """
    configuration = Configuration(Path(), environment)

    def given_values(given: tuple[str, ...], key: str) -> tuple[str, ...]:
        return given or (tuple(configuration.value(key)) if configuration.is_set(key) else ())

    return replace(
        typed,
        commands=given_values(typed.commands, "chat.allowed_commands"),
        domains=given_values(typed.domains, "chat.allowed_domains"),
    )


def resumed_settings(
    kept: RunSettings | None, typed: RunSettings, environment: Mapping[str, str]
) -> RunSettings:
    """Return the stored settings `kept`, changed by the command line's settings `typed`.

    A model on the command line replaces a stored scenario, and a scenario replaces a stored model.
    If a command in `typed` is not allowed yet, all commands in `typed` are added to the allowed
    commands. If all commands in `typed` are already allowed, only these commands remain allowed.
    The same rules apply to hosts as to commands.
    Raises: ConfigError.
    """
    if kept is None:
        return new_settings(typed, environment)
    is_said = typed.model is not None or typed.scenario is not None
    acts = typed if is_said else kept
    named = TypedPermissions(commands=typed.commands, domains=typed.domains)
    before = commands_and_hosts(kept.commands, kept.domains)
    now = named.apply_to(before)
    commands = (*now.allowed_commands, *now.allowed_command_globs)
    return RunSettings(
        acts.model,
        acts.scenario,
        commands if kept.commands else typed.commands,
        now.allowed_domains,
        typed.offered or kept.offered,
    )


def permissions_in(settings: RunSettings, environment: Mapping[str, str]) -> Permissions:
    """Return the permissions of roles.

    The consent setting of the flow decides which calls run without a question.

    Raises: ConfigError.
    """
    typed = TypedPermissions(commands=settings.commands or (ANY_COMMAND,), domains=settings.domains)
    permissions = permissions_of(environment, typed, Configuration(Path(), environment))
    return replace(permissions, allowed_domains=settings.domains)


def acting_of(settings: RunSettings, environment: Mapping[str, str]) -> RoleOptions:
    """Return the role options in `settings`; their list of roles is empty.

    Raises: ConfigError.
    """
    permissions = permissions_in(settings, environment)
    scenario = scenario_of(settings)
    return RoleOptions((), settings.model, scenario, permissions, offered=settings.offered)


def scenario_of(settings: RunSettings) -> Scenario | None:
    """Return the scenario of the scripted model. Raises: ScenarioNotFound, ConfigError."""
    if settings.scenario is None:
        return None
    file = Path(settings.scenario)
    if not file.is_file():
        raise ScenarioNotFound(
            f"there is no scenario {file}, which the flow is run with; name one with --scenario "
            "FILE, or a model with -m"
        )
    return scenario_in(file)


def scenario_folder(scenario: Scenario) -> str | None:
    """Return the folder to which all `write_file` calls of `scenario` write.

    Returns None if the calls write to several folders, if a path is absolute or has no folder, or
    if the folder is hidden.
    """
    steps = [step for rule in (*scenario.rules, *scenario.sequence) for step in rule.steps]
    calls = [call for step in steps if isinstance(step, CallTools) for call in step.calls]
    folders: set[str] = set()
    for call in calls:
        if call.name == "write_file":
            with suppress(msgspec.MsgspecError):
                first, *rest = PurePosixPath(
                    msgspec.json.decode(call.json, type=_Written).path
                ).parts
                folders.add(first if rest else "")
    found = folders.pop() if len(folders) == 1 else ""
    return found if found and not found.startswith((".", "/")) else None


class _Written(msgspec.Struct):
    path: str = "."


async def grant_added(store: Store, state: FlowState, acting: RoleOptions, by: str) -> None:
    """Grant commands and hosts of `acting` to the roles that have begun and do not have them yet.

    A role with an open turn receives the grants at the next resume.
    Raises: ConfigError.
    """
    async with Runtime(store) as runtime:
        lost = await lost_roles(store.backend, state)
        for role, session in state.sessions.items():
            if role in lost:
                continue
            known = await authority_of(store.backend, session)
            if known.bound is None or known.withheld is not None:
                continue  # the current agent is bound to it
            kept = msgspec.convert((known.bound.agent or {}).get("permissions", {}), Permissions)
            wanted = _with_added(kept, acting.permissions)
            if is_within(wanted, kept):
                continue
            agent = role_agent(msgspec.structs.replace(acting, permissions=wanted), base_role(role))
            try:
                await runtime.grant(session, agent, by=by)
            except TurnOpen:
                told = f"{safe(role)} has an open turn: it gets the added permissions at the next"
                remark(f"{told} `perdure flow resume`")


def _with_added(kept: Permissions, today: Permissions) -> Permissions:
    """Return `kept` with the commands and hosts of `today`.

    The credentials for hosts that `today` does not contain are removed.
    """
    hosts = today.allowed_domains
    return msgspec.structs.replace(
        kept,
        allowed_commands=today.allowed_commands,
        allowed_command_globs=today.allowed_command_globs,
        allowed_domains=hosts,
        credentials={host: text for host, text in kept.credentials.items() if host in hosts},
    )
