// One stream: figures, charts, groups, entries.

import {post} from "./api.js";
import {Chart, History} from "./chart.js";
import {amount, ask, bytes, clock, count, duration, facts, h, notify, rate, short, timeOf} from "./dom.js";
import {entryPages} from "./entries.js";
import {decode, encode, label, text} from "./names.js";
import {streamRules} from "./rules.js";
import {Table} from "./table.js";

const LINES = 6;

export function stream(place, main) {
    const {db} = place, raw = place.parameters.get("key") ?? "", key = decode(raw);
    const history = History.of(`stream ${db} ${raw}`);
    const rules = streamRules(place, db, key);
    const groupPath = (name) => `#/group?db=${db}&key=${raw}&group=${encode(name)}`;
    const table = place.keep(new Table({
        label: "Consumer groups", id: (row) => encode(row.name), sort: "lag", most: 8, empty: "No group reads this stream.",
        open: (row) => { location.hash = groupPath(row.name); },
        columns: [
            {id: "name", title: "Group", isText: true, width: 140, weight: 10, grows: 2, value: (row) => text(row.name),
                cell: (row) => h("a", {href: groupPath(row.name), tabindex: "-1", class: "name"}, label(row.name))},
            {id: "lag", title: "Lag", hint: "Entries that it has not read", value: (row) => row.lag, cell: (row) => count(row.lag), width: 90, weight: 9},
            {id: "lag_s", title: "Waits", hint: "How long the first of them has been waiting", value: (row) => row.lag_s, cell: (row) => duration(row.lag_s), width: 84, weight: 8},
            {id: "out", title: "Out/s", hint: "Entries read per second", value: (row) => row.rate, cell: (row) => rate(row.rate), width: 80, weight: 6},
            {id: "pending", title: "Pending", hint: "Delivered and not acknowledged", value: (row) => row.pending, cell: (row) => count(row.pending), width: 90, weight: 7},
            {id: "oldest", title: "Oldest", hint: "Age of the oldest pending entry", value: (row) => row.oldest_s, cell: (row) => row.pending ? duration(row.oldest_s) : "–", width: 84, weight: 4},
            {id: "consumers", title: "Consumers", value: (row) => row.consumers, cell: (row) => count(row.consumers), width: 100, weight: 5},
            {id: "rule", title: "Rule", isText: true, hint: "See the page of the group", width: 110, weight: 3, cell: (row) => h("span", {class: "mono"}, text(row.rule))},
            {id: "last", title: "Last delivered", isText: true, width: 175, weight: 1, cell: (row) => h("span", {class: "mono"}, row.last_delivered)},
        ],
    }));
    const figures = h("div", {});
    const more = h("p", {class: "hint", hidden: true});
    const archives = h("section", {"aria-label": "Archives", hidden: true});
    const trim = h("button", {type: "button", hidden: true, onclick: () => askTrim()}, "Trim…");
    const rates = place.keep(new Chart("Entries added per second", history, ["in"], rate));
    const lags = place.keep(new Chart("Lag of groups", history, () => [...history.values.keys()].filter((name) => name.startsWith("lag "))
        .sort((a, b) => (history.values.get(b).at(-1) ?? 0) - (history.values.get(a).at(-1) ?? 0)).slice(0, LINES).sort(), short, (name) => name.slice(4)));
    let length = 0;

    main.append(
        h("nav", {class: "path", "aria-label": "Where this is"}, h("a", {href: `#/streams?db=${db}`}, "Streams"), " › ", h("span", {"aria-current": "page"}, label(key))),
        h("div", {class: "title"}, h("h1", {}, label(key)), h("div", {class: "tools"}, trim)),
        figures, h("div", {class: "charts"}, rates.element, lags.element),
        h("section", {"aria-label": "Consumer groups"}, h("h2", {}, "Groups"), table.element, more), ...rules.parts, archives,
        entryPages(place, db, key));

    async function begin() {
        if (history.times.length) return;
        const kept = await place.get(`history?db=${db}&key=${raw}`).catch((error) => {
            if (error.status === 403) return {times: [], lags: []};     // who may not ask sees what comes from now on
            throw error;
        });
        history.begin(kept.times, (at, time) => ({
            in: history.rate("added", kept.added[at], time),
            ...Object.fromEntries(kept.lags.map(({name, values}) => [`lag ${label(name)}`, values[at - kept.times.length + values.length] ?? null])),
        }));
    }

    async function look() {
        await begin();
        const found = await place.get(`stream?db=${db}&key=${raw}`);
        const time = found.now_ms / 1000;
        const values = {in: history.rate("added", found.added, time)};
        for (const group of found.groups) {
            group.rate = history.rate(`read ${encode(group.name)}`, group.read, time);
            values[`lag ${label(group.name)}`] = group.lag;
            group.rule = rules.ruleOf(group.name);
        }
        history.add(time, values);
        length = found.length;
        trim.hidden = !found.may.trim;
        figures.replaceChildren(facts([
            ["Entries", count(found.length)], ["Memory", bytes(found.bytes)], ["In/s", rate(values.in)],
            ["Added in all", count(found.added)],
            ["First", found.first ? clock(timeOf(found.first)) : "–", found.first], ["Last", found.last ? clock(timeOf(found.last)) : "–", found.last],
            ["Expires in", found.ttl_ms === null ? "never" : duration(found.ttl_ms / 1000)],
        ], "Of this stream"));
        showArchives(found);
        table.set(found.groups);
        more.hidden = !found.more_groups;
        more.textContent = `${count(found.more_groups)} more are not shown.`;
        rates.draw();
        lags.draw();
    }

    // What archivers have noted of the stream: see streamd/client/archive_runs.py.
    function showArchives(found) {
        const ago = (ms) => ms === null ? "never" : `${duration(Math.max(0, found.now_ms - ms) / 1000)} ago`;
        const moment = (id) => id === null ? "–" : timeOf(id) ? clock(timeOf(id)) : id;
        archives.hidden = !found.archives.length;
        archives.replaceChildren(h("h2", {}, "Archived"), ...found.archives.flatMap((each) => [
            facts([
                ["Archive", each.archive], ["Entries", count(each.rows)], ["Size", bytes(each.bytes)],
                ["Since", moment(each.first), each.first], ["Up to", moment(each.last), each.last],
                ["Last success", ago(each.success_ms)],
            ], `In ${each.archive}`),
            each.error === null ? "" : h("p", {class: "bad"}, `The last run, ${ago(each.at_ms)}, failed: ${each.error}`),
        ]));
    }

    async function askTrim() {
        const least = h("input", {type: "number", min: "0", max: String(length), value: String(length), required: true});
        const note = h("p", {class: "hint"}, "Groups will not receive trimmed entries that they have not read.");
        if (!await ask("Trim the stream", [h("label", {}, "Newest entries that are kept", least), note], "Trim", {isDanger: true})) return;
        try {
            const {done} = await post("trim", {db: Number(db), key, max_length: Number(least.value)});
            notify(`Removed: ${amount(done, "entry", "entries")}.`);
        } catch (error) { notify(error.message, true); }
        await place.attempt(look);
    }

    place.every(2000, look);
}
