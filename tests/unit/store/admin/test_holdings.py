"""What an operator is told: what is where, and how the tiers stand."""

from __future__ import annotations

import pytest
from admin_harness import SERVED, WIDTH, AdminHarness
from store_harness import SIZE

from pagoda.core.errors import RequestError
from pagoda.core.events import Reason
from pagoda.core.holdings import (
    SHARED,
    Place,
    Scope,
    Standing,
    TierStatus,
    tenant_id,
)
from pagoda.store.trust import Fence


def test_holdings_tell_tier_tenant_size_and_age(admin: AdminHarness) -> None:
    """One line a namespace in each tier, tenants by a digest of their salt."""
    admin.put(admin.tokens(1, 3))
    admin.settle()
    admin.clock.advance(10)
    admin.put(admin.tokens(2, 5), salt="alice")
    admin.put(admin.tokens(3, 1), salt="alice")
    admin.compute(admin.tokens(2, 2), salt="alice")
    admin.settle()
    lines = admin.admin.holdings(Scope())
    assert [(h.tier, h.tenant, h.blocks, h.tokens, h.longest_chain) for h in lines] == [
        ("device", tenant_id("alice"), 2, 2 * WIDTH, 2),
        ("upper", tenant_id("alice"), 6, 6 * WIDTH, 5),
        ("upper", SHARED, 3, 3 * WIDTH, 3),
        ("lower", tenant_id("alice"), 6, 6 * WIDTH, 5),
        ("lower", SHARED, 3, 3 * WIDTH, 3),
    ]
    assert all(line.size_bytes == line.blocks * SIZE and line.current for line in lines)
    assert lines[1].oldest_s - lines[2].newest_s == 10
    assert "alice" not in str(lines)


def test_holdings_can_be_narrowed(admin: AdminHarness) -> None:
    """By tenant, by namespace's beginning, by age; and by all of them together."""
    admin.put(admin.tokens(1))
    admin.settle()
    admin.clock.advance(100)
    admin.put(admin.tokens(2), salt="a")
    admin.settle()
    name = SERVED.namespace_of("a").hex()

    def tenants(scope: Scope) -> set[str]:
        return {line.tenant for line in admin.admin.holdings(scope)}

    assert tenants(Scope(tenant=tenant_id("a"))) == {tenant_id("a")}
    assert tenants(Scope(salt="a")) == {tenant_id("a")}
    assert tenants(Scope(namespace=name[:8])) == {tenant_id("a")}
    assert tenants(Scope(older_than_s=50)) == {SHARED}
    assert tenants(Scope(older_than_s=50, salt="a")) == set()
    assert tenants(Scope(salt="nobody")) == set()


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        (Scope(tenant="0" * 16), "not_found"),
        (Scope(namespace="ffff"), "not_found"),
        (Scope(namespace=""), "invalid_value"),
        (Scope(prompt=(1, 2, 3)), "invalid_value"),
    ],
)
def test_a_scope_that_names_nothing_is_refused(
    admin: AdminHarness, scope: Scope, code: str
) -> None:
    """Nothing is cleared by a slip: an unknown tenant, an ambiguous namespace, half a block."""
    admin.put(admin.tokens(1))
    admin.put(admin.tokens(2), salt="a")
    admin.settle()
    with pytest.raises(RequestError) as refused:
        admin.admin.clear(scope, lambda cleared: None)
    assert refused.value.code == code
    assert admin.store.counts() == {"upper": 8, "lower": 8}


def test_a_lookup_says_where_and_touches_nothing(admin: AdminHarness) -> None:
    """Tokens by the fastest tier that holds them; the order of eviction stays as it was."""
    prompt = admin.tokens(1, 6)
    keys = admin.put(prompt)
    admin.settle()
    admin.compute(prompt[: 2 * WIDTH])
    upper = admin.store.levels()[0]
    upper.residency.retire([admin.slot("upper", key) for key in keys[4:]])
    policy = upper.residency._policy
    order = policy.victims(64, upper.state.leases)
    looked = admin.admin.lookup([*prompt, 7], "")
    assert (looked.prompt_tokens, looked.resident_tokens) == (6 * WIDTH + 1, 6 * WIDTH)
    assert looked.places == (
        Place(tier="device", held=2 * WIDTH, first=2 * WIDTH),
        Place(tier="upper", held=4 * WIDTH, first=2 * WIDTH),
        Place(tier="lower", held=6 * WIDTH, first=2 * WIDTH),
    )
    assert policy.victims(64, upper.state.leases) == order
    assert upper.state.lease_count() == 0
    assert admin.admin.lookup(prompt, "other").resident_tokens == 0, "a salt is another tenant"


def test_tiers_tell_how_they_stand(admin: AdminHarness) -> None:
    """Serving, fenced by what it does, draining because somebody said so, lost at the start; the
    graver word goes first. What a draining tier holds is read, and nothing is added to it."""
    keys = admin.put(admin.tokens(1))
    admin.settle()

    def standings() -> list[str]:
        return [status.standing for status in admin.admin.tiers()]

    lower = admin.store.levels()[1]
    assert standings() == ["serving", "serving"]
    lower.trust.fence(Fence.SPACE, Reason.FULL, "full")
    assert standings() == ["serving", "fenced"]
    drained = admin.admin.drain("lower")
    assert drained == TierStatus(
        tier="lower",
        standing=Standing.DRAINING,
        blocks=4,
        slots=64,
        policy="heat",
        leader="lru",
    )
    assert standings() == ["serving", "draining"]
    admin.put(admin.tokens(2))
    admin.settle()
    assert admin.store.counts() == {"upper": 8, "lower": 4}
    assert admin.found(keys) == 4
    lower.trust.lose("gone")
    assert standings() == ["serving", "lost"]
    with pytest.raises(RequestError, match="upper, lower") as refused:
        admin.admin.drain("device")
    assert refused.value.code == "not_found"


def test_what_lies_behind_a_gap_is_held_but_not_resident(admin: AdminHarness) -> None:
    """A prefix ends at the first block that no tier holds."""
    keys = admin.put(admin.tokens(1, 4))
    admin.settle()
    for level in admin.store.levels():
        level.residency.retire([level.state.slot_of(keys[1])])
    looked = admin.admin.lookup(admin.tokens(1, 4), "")
    assert looked.resident_tokens == WIDTH
    assert [place.held for place in looked.places] == [0, 3 * WIDTH, 3 * WIDTH]
