// The rules of a stream and of a group: what is set, what waits and until when, dead letters; and setting them.

import {post} from "./api.js";
import {amount, ask, clock, count, duration, facts, h, notify, timeOf} from "./dom.js";
import {fieldsText, showEntry} from "./entries.js";
import {encode, label, text} from "./names.js";
import {Table} from "./table.js";

const KNOWN = 5000;     // ms: how old what is shown of rules may be

// A section with one rule, and the button that changes it. `set` saves a text of options.
function section(kind, example, set) {
    let rule = null;
    const written = h("p", {class: "mono rule"});
    const note = h("p", {class: "hint", hidden: true}, "From the configuration. A rule that is set here replaces it.");
    const wrong = h("p", {class: "bad", hidden: true});
    const figures = h("div", {});
    const button = h("button", {type: "button", hidden: true, onclick: () => change()}, "Set rule…");
    const element = h("section", {"aria-label": "Rules", hidden: true},
        h("div", {class: "title"}, h("h2", {}, "Rules"), h("div", {class: "tools"}, button)), written, note, wrong, figures);

    function show(found, maySet) {
        rule = found;
        element.hidden = rule === null;
        if (rule === null) return;
        written.textContent = text(rule.options) || `The ${kind} has no rule.`;
        written.classList.toggle("mono", rule.options !== "");
        note.hidden = !rule.is_default;
        wrong.hidden = rule.error === null;
        wrong.textContent = rule.error === null ? "" : text(rule.error);
        figures.replaceChildren(...rule.figures.length ? [facts(rule.figures.map(([name, value]) => [name[0].toUpperCase() + name.slice(1), count(value)]), "Since the server started")] : []);
        button.hidden = !maySet;
    }

    async function change() {
        const options = h("input", {value: rule.is_default ? "" : rule.options, class: "wide mono", spellcheck: "false", autocomplete: "off"});
        const hint = h("p", {class: "hint"}, `For example ${example}. Without any option, the rule is removed.`);
        if (!await ask(`The rule of the ${kind}`, [h("label", {}, "Options", options), hint], "Set")) return;
        try {
            await set(options.value);
            notify(options.value.trim() ? "The rule is set." : "The rule is removed.");
        } catch (error) { notify(error.message, true); }
    }

    return {element, show};
}

// The parts of the page of a stream; `ruleOf` is the text of a group's rule, as far as it is known.
export function streamRules(place, db, key) {
    const groups = new Map();
    const own = section("stream", "RETAIN LENGTH 100000 ACKED", async (options) => {
        await post("set-rule", {db: Number(db), key, options});
        await place.attempt(look);
    });
    const table = place.keep(new Table({
        label: "Waiting entries", id: (row) => row.id, most: 8, empty: "Nothing waits.", sort: "due", descending: false, open: (row) => showEntry(db, key, row.id),
        columns: [
            {id: "due", title: "Due", value: (row) => row.due_ms ?? Infinity, cell: (row) => row.due_ms === null ? "never: not a number" : row.due_ms === 0 ? "now" : clock(new Date(row.due_ms)), width: 170, weight: 10, isText: true},
            {id: "in", title: "In", hint: "Time until then", cell: (row) => row.due_ms === null ? "–" : duration(Math.max(0, row.due_ms - Date.now()) / 1000), width: 100, weight: 9},
            {id: "id", title: "ID", isText: true, width: 165, weight: 7, cell: (row) => h("span", {class: "mono"}, row.id)},
            {id: "fields", title: "Fields", isText: true, width: 120, weight: 8, grows: 1, cell: (row) => h("span", {class: "mono"}, fieldsText(row))},
        ],
    }));
    const note = h("p", {class: "hint", hidden: true});
    const waiting = h("section", {"aria-label": "Waiting", hidden: true}, h("h2", {}, "Waiting"), table.element, note);

    async function look() {
        const found = await place.get(`rules?db=${db}&key=${encode(key)}`);
        own.show(found.rule, found.may.set);
        groups.clear();
        for (const {name, rule} of found.groups) groups.set(encode(name), rule);
        const due = found.rule?.values.due;
        waiting.hidden = due === undefined;
        if (due === undefined) return;
        const {waiting: rows, looked, is_whole} = await place.get(`waiting?db=${db}&key=${encode(key)}&field=${encode(due)}`);
        table.set(rows);
        note.hidden = is_whole;
        note.textContent = `Of the first ${amount(looked, "entry", "entries")}.`;
    }

    place.every(KNOWN, look);
    return {parts: [own.element, waiting], ruleOf: (name) => groups.get(encode(name))?.options ?? ""};
}

// The parts of the page of a group; `retry` says when a pending entry can be claimed again.
export function groupRules(place, db, key, name) {
    const path = `db=${db}&key=${encode(key)}&group=${encode(name)}`;
    let rule = null;
    const own = section("group", "MAXDELIVERIES 5 DEADLETTER jobs:dead BACKOFF 1000", async (options) => {
        await post("set-rule", {db: Number(db), key, group: name, options});
        await place.attempt(look);
    });
    const table = place.keep(new Table({
        label: "Dead letters", id: (row) => row.id, most: 8, empty: "There are none of this group.", selects: true,
        open: (row) => showEntry(db, rule.values.deadletter, row.id),
        columns: [
            {id: "id", title: "ID", isText: true, width: 165, weight: 7, cell: (row) => h("span", {class: "mono"}, row.id)},
            {id: "when", title: "Given up", isText: true, width: 150, weight: 6, cell: (row) => clock(timeOf(row.id))},
            {id: "entry", title: "Entry", isText: true, hint: "The ID that it had in this stream", width: 165, weight: 9, cell: (row) => h("span", {class: "mono"}, text(row.entry))},
            {id: "reason", title: "Reason", isText: true, width: 120, weight: 10, grows: 1, cell: (row) => text(row.reason)},
            {id: "deliveries", title: "Deliveries", value: (row) => Number(row.deliveries), cell: (row) => text(row.deliveries), width: 104, weight: 8},
            {id: "consumer", title: "Consumer", isText: true, width: 100, weight: 5, cell: (row) => label(row.consumer)},
        ],
    }));
    const where = h("a", {});
    const note = h("p", {class: "hint", hidden: true});
    const some = h("button", {type: "button", hidden: true, disabled: true, onclick: () => redrive([...table.chosen])}, "Redrive…");
    const all = h("button", {type: "button", hidden: true, onclick: () => redrive(null)}, "Redrive all…");
    const letters = h("section", {"aria-label": "Dead letters", hidden: true}, h("div", {class: "title"}, h("h2", {}, "Dead letters in ", where),
        h("div", {class: "tools"}, some, all)), table.element, note);
    table.chosenChanged = () => { some.disabled = !table.chosen.size; };

    async function look() {
        const found = await place.get(`rules?${path}`);
        rule = found.rule;
        if (rule) {
            for (const [title, value] of [["held back", found.held_back], ["dead-lettered", found.dead_lettered]]) {
                if (value) rule.figures.push([title, value]);
            }
        }
        own.show(rule, found.may.set);
        const dead = rule?.values.deadletter;
        letters.hidden = dead === undefined;
        if (dead === undefined) return;
        where.textContent = label(dead);
        where.href = `#/stream?db=${db}&key=${encode(dead)}`;
        some.hidden = all.hidden = !found.may.redrive;
        const {letters: rows, looked, is_whole} = await place.get(`letters?${path}&dead=${encode(dead)}`);
        table.set(rows);
        all.disabled = !rows.length;
        note.hidden = is_whole;
        note.textContent = `Among the newest ${amount(looked, "letter")}.`;
    }

    async function redrive(ids) {
        const dead = rule.values.deadletter;
        const what = ids === null ? "The oldest dead letters of this group, 1,000 at most," : amount(ids.length, "dead letter");
        const adds = h("input", {type: "checkbox"});
        const body = [h("p", {}, `${what} will be pending in the group again, with no delivery counted. Consumers get them by a claim.`),
            h("label", {class: "inline"}, adds, " Add entries to the stream again that no longer exist; all groups get them")];
        if (!await ask("Redrive", body, "Redrive")) return;
        try {
            const {done} = await post("redrive", {db: Number(db), key, group: name, dead, adds: adds.checked, ...ids === null ? {} : {ids}});
            table.chosen.clear();
            table.chosenChanged();
            notify(`Redriven: ${amount(done, "dead letter")}.`);
        } catch (error) { notify(error.message, true); }
        await place.attempt(look);
    }

    // Seconds until a pending entry can be claimed, but for what it varies by; null: there is no back-off.
    function retry(row) {
        const {backoff, factor = 1, max = Infinity} = rule?.values ?? {};
        if (backoff === undefined) return null;
        if (row.consumer === "" || row.deliveries === 0) return 0;
        return Math.max(0, Math.min(max, backoff * Number(factor) ** (row.deliveries - 1)) - row.idle_ms) / 1000;
    }

    place.every(KNOWN, look);
    return {parts: [own.element, letters], retry};
}
