// One consumer group: its consumers, and what is pending.

import {Refused, post} from "./api.js";
import {amount, ask, count, duration, facts, h, notify} from "./dom.js";
import {showEntry} from "./entries.js";
import {decode, encode, label, text} from "./names.js";
import {groupRules} from "./rules.js";
import {Table} from "./table.js";

const OFTEN = 5;

export function group(place, main) {
    const {db} = place, rawKey = place.parameters.get("key") ?? "", rawGroup = place.parameters.get("group") ?? "";
    const key = decode(rawKey), name = decode(rawGroup);
    const path = `db=${db}&key=${rawKey}&group=${rawGroup}`;
    const streamPath = `#/stream?db=${db}&key=${rawKey}`;
    const consumerPath = (of) => `#/group?${path}&consumer=${encode(of)}`;
    const given = place.parameters.get("consumer");
    const valueOf = (of) => `=${encode(of)}`;      // of the choice: a name may be empty
    const rules = groupRules(place, db, key, name);
    let may = {}, consumers = [], next = null;

    const people = place.keep(new Table({
        label: "Consumers", id: (row) => encode(row.name), sort: "pending", most: 8, empty: "There are no consumers.",
        open: (row) => { location.hash = consumerPath(row.name); },
        columns: [
            {id: "name", title: "Consumer", isText: true, width: 90, weight: 11, grows: 2, value: (row) => text(row.name),
                cell: (row) => h("a", {href: consumerPath(row.name), tabindex: "-1", class: "name"}, label(row.name))},
            {id: "pending", title: "Pending", value: (row) => row.pending, cell: (row) => count(row.pending), width: 90, weight: 9},
            {id: "idle", title: "Seen", hint: "How long ago it asked last", value: (row) => row.idle_ms, cell: (row) => duration(row.idle_ms / 1000), width: 90, weight: 8},
            {id: "inactive", title: "Got", hint: "Time since its last delivery", value: (row) => row.inactive_ms,
                cell: (row) => row.inactive_ms === null ? "never" : duration(row.inactive_ms / 1000), width: 90, weight: 5},
            {id: "remove", title: "", width: 96, weight: 10, cell: (row) => may.delete_consumer
                ? h("button", {type: "button", class: "small", "aria-label": `Remove the consumer ${label(row.name)}`, onclick: () => askRemove(row.name)}, "Remove…") : ""},
        ],
    }));
    const waiting = place.keep(new Table({
        label: "Pending entries", id: (row) => row.id, most: 12, empty: "Nothing is pending here.", selects: true,
        open: (row) => showEntry(db, key, row.id),
        columns: [
            {id: "id", title: "ID", isText: true, width: 165, weight: 10, cell: (row) => h("span", {class: "mono"}, row.id)},
            {id: "consumer", title: "Consumer", isText: true, width: 100, weight: 6, grows: 2, cell: (row) => label(row.consumer)},
            {id: "idle", title: "Idle", hint: "Since it was delivered last", value: (row) => row.idle_ms, cell: (row) => duration(row.idle_ms / 1000), width: 84, weight: 9},
            {id: "deliveries", title: "Deliveries", value: (row) => row.deliveries, hint: `More than ${OFTEN} are many: is there something wrong with the entry?`,
                cell: (row) => row.deliveries > OFTEN ? h("strong", {class: "bad"}, count(row.deliveries)) : count(row.deliveries), width: 104, weight: 7},
            {id: "retry", title: "Retry in", hint: "By the back-off of the rule; about, if it has JITTER", cell: (row) => duration(rules.retry(row)), width: 90, weight: 4},
        ],
    }));
    const figures = h("div", {});
    const owner = h("select", {"aria-label": "Pending entries of", onchange: () => { location.hash = owner.value ? `#/group?${path}&consumer=${owner.value.slice(1)}` : `#/group?${path}`; }}, h("option", {value: ""}, "All consumers"),
        given === undefined ? null : h("option", {value: `=${given}`, selected: true}, label(decode(given))));
    const idle = h("input", {type: "number", min: "0", value: "0", "aria-label": "Idle for at least this many seconds", onchange: () => load("")});
    const acknowledge = h("button", {type: "button", hidden: true, onclick: () => askAck()}, "Acknowledge…");
    const claim = h("button", {type: "button", hidden: true, onclick: () => askClaim()}, "Claim…");
    const claimAll = h("button", {type: "button", hidden: true, onclick: () => askClaimAll()}, "Claim all…");
    const first = h("button", {type: "button", onclick: () => load("")}, "First");
    const further = h("button", {type: "button", disabled: true, onclick: () => load(next)}, "Next");
    const more = h("p", {class: "hint", hidden: true});
    waiting.chosenChanged = () => { acknowledge.disabled = claim.disabled = !waiting.chosen.size; };

    main.append(
        h("nav", {class: "path", "aria-label": "Where this is"}, h("a", {href: `#/streams?db=${db}`}, "Streams"), " › ",
            h("a", {href: streamPath}, label(key)), " › ", h("span", {"aria-current": "page"}, label(name))),
        h("div", {class: "title"}, h("h1", {}, label(name))), figures,
        h("section", {"aria-label": "Consumers"}, h("h2", {}, "Consumers"), people.element, more),
        h("section", {"aria-label": "Pending entries"}, h("div", {class: "title"}, h("h2", {}, "Pending"),
            h("div", {class: "tools"}, acknowledge, claim, claimAll, owner, h("label", {class: "inline"}, "idle ≥", idle, "s"), first, further)), waiting.element), ...rules.parts);

    async function look() {
        const found = await place.get(`group?${path}`);
        may = found.may;
        consumers = found.consumer_list;
        figures.replaceChildren(facts([
            ["Lag", count(found.lag)], ["Waits", duration(found.lag_s)], ["Pending", count(found.pending)],
            ["Oldest pending", found.pending ? duration(found.oldest_s) : "–", found.oldest_pending], ["Read", count(found.read)],
            ["Last delivered", h("span", {class: "mono"}, found.last_delivered)],
        ], "Of this group"));
        acknowledge.hidden = !may.ack;
        claim.hidden = !may.claim;
        claimAll.hidden = !may.claim || !owner.value;
        people.set(consumers);
        more.hidden = !found.more_consumers;
        more.textContent = `${count(found.more_consumers)} more are not shown.`;
        const chosen = owner.value;
        owner.replaceChildren(h("option", {value: ""}, "All consumers"),
            ...consumers.map((each) => h("option", {value: valueOf(each.name)}, label(each.name))));
        if (chosen && !consumers.some((each) => valueOf(each.name) === chosen)) owner.append(h("option", {value: chosen}, label(decode(chosen.slice(1)))));
        owner.value = chosen;
    }

    async function load(start) {
        const of = owner.value ? `&consumer=${owner.value.slice(1)}` : "";
        try {
            const found = await place.get(`pending?${path}${of}&idle_ms=${Math.round(Number(idle.value) * 1000)}&start=${encodeURIComponent(start)}`);
            waiting.chosen.clear();
            waiting.set(found.pending);
            waiting.body.scrollTop = 0;
            next = found.next;
            further.disabled = next === null;
        } catch (error) {
            if (error instanceof Refused) notify(error.message, true);
            else if (error.name !== "AbortError") throw error;
        }
    }

    async function change(what, body, said) {
        try {
            const {done} = await post(what, {db: Number(db), key, group: name, ...body});
            notify(said(done));
        } catch (error) { notify(error.message, true); }
        await Promise.all([place.attempt(look), load("")]);
    }

    async function askAck() {
        const ids = [...waiting.chosen];
        const note = h("p", {}, `${amount(ids.length, "entry", "entries")} will count as done: no consumer will get them again.`);
        if (await ask("Acknowledge", [note], "Acknowledge", {isDanger: true})) await change("ack", {ids}, (done) => `Acknowledged: ${amount(done, "entry", "entries")}.`);
    }

    // For which consumer to claim; null if none.
    async function askOwner(said) {
        const to = h("input", {list: "consumers", value: consumers.length === 1 ? "" : label(consumers.find((each) => valueOf(each.name) !== owner.value)?.name ?? "")});
        const known = h("datalist", {id: "consumers"}, ...consumers.map((each) => h("option", {value: label(each.name)})));
        const note = h("p", {class: "hint"}, `${said} will be pending for that consumer, with unchanged delivery counts.`);
        if (!await ask("Claim", [h("label", {}, "Consumer", to), known, note], "Claim")) return null;
        const found = consumers.find((each) => label(each.name) === to.value)?.name ?? to.value;
        if (found === "" && !consumers.some((each) => each.name === "")) notify("A consumer is needed.", true);
        else return found;
        return null;
    }

    async function askClaim() {
        const ids = [...waiting.chosen];
        const consumer = await askOwner(amount(ids.length, "entry", "entries"));
        if (consumer !== null) await change("claim", {ids, consumer}, (done) => `Claimed: ${amount(done, "entry", "entries")}.`);
    }

    async function askClaimAll() {
        const from = decode(owner.value.slice(1));
        const row = consumers.find((each) => valueOf(each.name) === owner.value);
        const consumer = await askOwner(`All ${amount(row?.pending ?? 0, "pending entry", "pending entries")} of ${label(from)}`);
        if (consumer === null) return;
        let claimed = 0, start = "-";
        try {
            while (start !== null) {
                const found = await post("claim-all", {db: Number(db), key, group: name, from, consumer, start});
                claimed += found.done;
                start = found.next;
                notify(`Claimed: ${amount(claimed, "entry", "entries")}.`);
            }
        } catch (error) { notify(error.message, true); }
        await Promise.all([place.attempt(look), load("")]);
    }

    async function askRemove(of) {
        const row = consumers.find((each) => encode(each.name) === encode(of));
        if (!row) {
            notify("It is gone.", true);
            return;
        }
        const note = row.pending ? `Its ${amount(row.pending, "pending entry", "pending entries")} will be forgotten with it: claim them first, unless they are done.`
            : "Nothing is pending there.";
        if (await ask(`Remove ${label(row.name)}`, [h("p", {}, note)], "Remove", {isDanger: true})) {
            await change("delete-consumer", {consumer: row.name}, () => `${label(row.name)} was removed.`);
        }
    }

    waiting.chosenChanged();
    place.every(3000, look);
    load("");
}
