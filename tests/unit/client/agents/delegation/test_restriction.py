from typing import get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.client.agents.agent import Agent
from perdure.client.agents.delegation.restriction import child_budget, narrowed_child, within
from perdure.engine.turns.config import Budget, OnExceed
from perdure.session.ledger import Spending
from perdure.tools.permissions import SCOPES, ApprovalMode, Permissions

lines = st.sets(st.sampled_from(["ls", "git status", "pytest -q"])).map(tuple)
globs = st.sets(st.sampled_from(["git *", "pytest *", "**"])).map(tuple)
hosts = st.sets(st.sampled_from(["a.example.org", "b.example.org"])).map(sorted).map(tuple)
permissions = st.builds(
    Permissions,
    scope=st.sampled_from(SCOPES),
    roots=st.sets(st.sampled_from(["/srv/a", "/srv/b"])).map(tuple),
    allowed_commands=lines,
    allowed_command_globs=globs,
    command_env=st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["1", "2"])),
    command_timeout_s=st.floats(1, 120),
    allowed_domains=hosts,
    search_endpoint=st.sampled_from([None, "https://s.example.org", "https://t.example.org"]),
    approval=st.sampled_from(get_args(ApprovalMode)),
)


@given(permissions, permissions)
@settings(max_examples=40, deadline=None)
def test_child_gets_only_permissions_that_the_parent_also_has(
    child: Permissions, parent: Permissions
) -> None:
    both = within(child, parent)
    for wide in (child, parent):
        wide.restrict(
            scope=both.scope,
            allowed_commands=both.allowed_commands,
            allowed_domains=both.allowed_domains,
        )
        globs = set(wide.allowed_command_globs)
        assert set(both.allowed_command_globs) <= globs or "**" in globs
        assert both.command_env.items() <= wide.command_env.items()
        assert both.command_timeout_s <= wide.command_timeout_s
        assert both.search_endpoint in (None, wide.search_endpoint)
    assert within(child, child) == msgspec.structs.replace(child)


def test_child_gets_only_credentials_that_the_parent_also_has() -> None:
    def with_secret(name: str) -> Permissions:
        return Permissions(
            allowed_domains=("a.example.org",),
            credentials={"a.example.org": f"Bearer {{{{secrets.{name}}}}}"},
        )

    assert within(with_secret("A"), with_secret("A")) == with_secret("A")
    assert within(with_secret("A"), with_secret("B")).credentials == {}


def test_child_searches_the_local_network_only_if_the_parent_may() -> None:
    open_, closed = (
        Permissions(search_endpoint="https://s.example.org", is_search_local=is_local)
        for is_local in (True, False)
    )
    assert within(open_, open_).is_search_local
    assert not within(open_, closed).is_search_local
    assert not within(closed, open_).is_search_local


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from(get_args(OnExceed)),
)
@settings(max_examples=40, deadline=None)
def test_child_never_gets_more_budget_than_its_parent_has_left(
    own: int, limit: int, spent: int, on_exceed: OnExceed
) -> None:
    budget = child_budget(Budget(own), Budget(limit, on_exceed), limit, Spending(spent))
    if limit == 0:
        assert budget == Budget(own)
    elif budget is None:
        assert spent >= limit
    else:
        assert 0 < budget.max_cost_microcents <= max(limit - spent, 1)
        assert not own or budget.max_cost_microcents <= own or on_exceed == "warn"


def test_child_gets_only_tools_that_the_parent_also_has() -> None:
    parent = Agent(
        "p", model="scripted:echo", tools=["read_file", "git_status", "invoke_agent"], max_depth=1
    )
    child = Agent("c", model="scripted:echo", tools=["git_status", "write_file", "invoke_agent"])
    made = narrowed_child(child, parent, parent.registry, Budget(5, "fail"))
    assert made.registry.names == ("git_status",)
    assert (made.max_depth, made.max_cost_microcents, made.on_exceed) == (0, 5, "fail")
