"""The defects: mistakes that this field has made, or could make, each in the code as it is."""

from __future__ import annotations

from pagoda.lab.defects.patch import Defect

DEFECTS: tuple[Defect, ...] = (
    Defect(
        name="evict-one-too-many",
        seam="pagoda.core.decide:make_room",
        old="policy.victims(missing, state.leases)",
        new="policy.victims(missing + 1, state.leases)",
        story="making room drops a block more than is needed, each time",
    ),
    Defect(
        name="evict-one-too-few",
        seam="pagoda.core.decide:make_room",
        old="policy.victims(missing, state.leases)",
        new="policy.victims(missing - 1, state.leases)",
        story="a block is refused beside others that could be dropped for it",
    ),
    Defect(
        name="evict-leased",
        seam="pagoda.core.policy.lru:Lru.victims",
        old="oldest(count, leases)",
        new="oldest(count, leases * 0)",
        story="the policy names blocks that requests are reading",
    ),
    Defect(
        name="free-while-leased",
        seam="pagoda.core.state:TierState.retire",
        old="if self._lease_at[slot] == 0 and self._settle(slot):",
        new="if self._settle(slot):",
        story="an evicted slot is reused while somebody still holds it",
    ),
    Defect(
        name="lease-not-counted",
        seam="pagoda.store.reader:Reader._hold",
        old="level.state.lease(fetch.slots)",
        new="level.state.lease(fetch.slots[1:])",
        story="a read holds all its slots but the first",
    ),
    Defect(
        name="lease-leaked",
        seam="pagoda.store.reader:Reader._call_back",
        old="level.state.release(load.slots)",
        new="level.state.release(load.slots[1:])",
        story="a read that was called back keeps a slot for ever",
    ),
    Defect(
        name="generation-not-raised",
        seam="pagoda.core.state:TierState._settle",
        old="self._generation_at[slot] += 1",
        new="pass",
        story="a slot's next block has the generation of its last one",
    ),
    Defect(
        name="generation-floor",
        seam="pagoda.core.state:TierState.adopt",
        old="self._generations[:] = floor",
        new="self._generations[:] = 0",
        story="after a restart, slots begin anew with generations that were used before",
    ),
    Defect(
        name="retiring-slot-never-free",
        seam="pagoda.core.state:TierState.release",
        old="[slot for slot in last if self._settle(slot)]",
        new="last",
        story="a slot whose last reader left is told free, and never is",
    ),
    Defect(
        name="hole-in-a-prefix",
        seam="pagoda.core.decide:_locations",
        old="        else:\n            break",
        new="        else:\n            continue",
        story="a look-up goes on behind a block that nobody holds",
    ),
    Defect(
        name="key-without-dtype",
        seam="pagoda.core.identity:Namespace.digest",
        old="field.name for field in fields(self)",
        new='field.name for field in fields(self) if field.name != "dtype"',
        story="blocks of a bf16 and of an fp8 cache have one name",
    ),
    Defect(
        name="key-without-weights",
        seam="pagoda.core.identity:Namespace.digest",
        old="field.name for field in fields(self)",
        new='field.name for field in fields(self) if field.name != "weights"',
        story="blocks survive an update of the weights",
    ),
    Defect(
        name="key-without-parent",
        seam="pagoda.core.identity:chain",
        old="head + parent + count",
        new="head + count",
        story="equal tokens behind different prefixes have one name",
    ),
    Defect(
        name="short-read-unchecked",
        seam="pagoda.tiers.sealed:SealedTier._judge",
        old="if count < len(target):",
        new="if count < 0:",
        story="a cut payload is judged with leftover memory as its end",
    ),
    Defect(
        name="digest-not-checked",
        seam="pagoda.tiers.sealed:SealedTier._judge",
        old="if (seen or digest(target)) != self.seals.digest(order.slot):",
        new="if count < 0:",
        story="whatever a tier delivers is handed over",
    ),
    Defect(
        name="buffer-not-zeroed",
        seam="pagoda.tiers.sealed:SealedTier.load",
        old="buffer[:] = bytes(len(buffer))",
        new="pass",
        story="the bytes of a refused block stay in the request's memory",
    ),
    Defect(
        name="stale-generation-accepted",
        seam="pagoda.tiers.seals:SealTable.length",
        old="self._kind_at[slot] == _ABSENT or self._generation_at[slot] != generation",
        new="self._kind_at[slot] == _ABSENT",
        story="an order from before a slot's reuse is answered from after it",
    ),
    Defect(
        name="commit-before-write",
        seam="pagoda.tiers.sealed:SealedTier.store",
        old="    sealed = self._write(slots, seals, payloads)\n",
        new=(
            "    sealed = [self.envelope.wrap(*pair)[0] for pair in zip(seals, payloads)]\n"
            "        self.tier.commit(slots, [pack(seal, slot=slot, slab_id=identity)"
            " for slot, seal in zip(slots, sealed)])\n"
            "        sealed = self._write(slots, seals, payloads)\n"
        ),
        story="a header is written before the payload that it speaks for",
    ),
    Defect(
        name="overwrite-beneath-a-header",
        seam="pagoda.tiers.sealed:SealedTier.store",
        old="self.tier.reserve(slots)",
        new="pass",
        story="a payload is overwritten while the old block's header still stands",
    ),
    Defect(
        name="headers-unchecked",
        seam="pagoda.seal.headers:_sound",
        old='(table["digest"] == digests)',
        new='(table["magic"] == MAGIC)',
        story="a damaged header is believed after a restart",
    ),
    Defect(
        name="older-copy-wins",
        seam="pagoda.store.copies:newest_copies",
        old="        if key in newest:\n            older.append(newest.pop(key))\n",
        new="        if key in newest:\n            older.append(position)\n            continue\n",
        story="of two copies on a drive, the one that was replaced comes back",
    ),
    Defect(
        name="older-drive-wins",
        seam="pagoda.store.rank:older_copies",
        old="loser = min(first, copy, key=lambda entry: entry[0])",
        new="loser = max(first, copy, key=lambda entry: entry[0])",
        story="a drive that was away brings its old copies back",
    ),
    Defect(
        name="failed-write-published",
        seam="pagoda.store.writer:Writer._landed",
        old="if write.error is not None:",
        new="if write.error is not None and write.rank > 1:",
        story="a block whose write failed can be found",
    ),
    Defect(
        name="published-twice",
        seam="pagoda.store.writer:Writer._publish",
        old="self._hooks.withdraw(other, doubles)",
        new="pass",
        story="a block that was stored again stays on the other drive, too",
    ),
    Defect(
        name="clear-forgets-the-queue",
        seam="pagoda.store.writer:Writer.cancel",
        old="self._skip_all(position, Reason.CLOSED)",
        new="pass",
        story="what waited to be written while the cache was cleared is found later",
    ),
    Defect(
        name="clear-forgets-what-flies",
        seam="pagoda.store.writer:Writer.cancel",
        old="self._epoch += 1",
        new="pass",
        story="what was being written while the cache was cleared is found later",
    ),
    Defect(
        name="staging-reused-in-flight",
        seam="pagoda.store.writer:Writer._fill",
        old="barred=[*self._flying, *packed]",
        new="barred=packed",
        story="two writes of one drive share their staging memory",
    ),
    Defect(
        name="staging-overlaps",
        seam="pagoda.store.write:_cut",
        old="start += -(-size // _PAGE_BYTES) * _PAGE_BYTES",
        new="start += size // 2",
        story="blocks on their way down overwrite each other in staging memory",
    ),
    Defect(
        name="given-back-too-early",
        seam="pagoda.store.writer:Writer._start",
        old="    loads = loads_of(items)\n",
        new=(
            "    loads = loads_of(items)\n"
            "    for item in items if position == 0 else ():\n"
            "        item.release()\n"
            "        item.release = bool\n"
        ),
        story="the saver's memory is given back when its write begins, not when it has ended",
    ),
    Defect(
        name="given-back-twice",
        seam="pagoda.store.writer:Writer._give_up",
        old="item.release()",
        new="item.release(); item.release()",
        story="the memory of a block that is given up is given back twice",
    ),
    Defect(
        name="late-buffer-forgotten",
        seam="pagoda.store.restore:Restore.started",
        old="self._flying.update(positions)",
        new="pass",
        story="a request reuses memory that a late read still writes to",
    ),
    Defect(
        name="recalled-read-goes-on",
        seam="pagoda.store.reader:Reader._read",
        old="if not load.claim():",
        new="if load.started:",
        story="a read that was called back at its deadline is carried out after all",
    ),
    Defect(
        name="deadline-ignored",
        seam="pagoda.store.reader:Reader.expire",
        old="now_s >= load.deadline_s",
        new="now_s >= load.deadline_s + 60",
        story="a request waits for a stuck drive",
    ),
    Defect(
        name="negative-entry-forgotten",
        seam="pagoda.core.suspects:Suspects.add",
        old="self._until_s[key] = now_s + self._ttl_s",
        new="self._until_s[key] = now_s",
        story="a block that was bad is asked for again at once, from the next tier",
    ),
    Defect(
        name="bad-block-stays",
        seam="pagoda.store.level:Level.read_failed",
        old="self.residency.quarantine([slot])",
        new="pass",
        story="a bad block stays in service",
    ),
    Defect(
        name="policy-forgets",
        seam="pagoda.core.residency:Residency.publish",
        old="self._policy.insert(done)",
        new="self._policy.insert(done[1:])",
        story="a published block is unknown to the policy, and never dropped",
    ),
    Defect(
        name="wear-budget-ignored",
        seam="pagoda.core.budget:WriteBudget.spend",
        old="self.usable_bytes -= size_bytes",
        new="self.usable_bytes -= size_bytes // 4",
        story="a drive is written four times as much as it may",
    ),
    Defect(
        name="wear-account-not-kept",
        seam="pagoda.core.budget:WriteBudget.grant",
        old="self._bucket -= self._pending",
        new="self._bucket -= 0",
        story="each grant is given without being taken from the day's bytes",
    ),
    Defect(
        name="erase-forgets-its-lease",
        seam="pagoda.store.level:Level.withdraw",
        old="    self.residency.retire(slots)",
        new="    self.residency.retire(slots)\n    self.state.release(slots)\n"
        "    self.state.leases[list(slots)] += 1",
        story="a slot is free while its old header is still to be erased",
    ),
)
