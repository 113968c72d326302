// The server as a whole: figures, clients, the slow log, memory, settings.

import {Chart, History} from "./chart.js";
import {amount, bytes, clock, copyButton, count, duration, facts, h, rate, short} from "./dom.js";
import {label, text} from "./names.js";
import {streamPath} from "./streams.js";
import {Table} from "./table.js";

const history = History.of("server");
const number = (value) => value === undefined ? null : Number(value);
const tall = () => Math.max(6, Math.floor((innerHeight - 230) / 34));

// A finding of `streamd doctor`: what has it, its figure, and how to mend it.
function findingLine(found) {
    const fix = found.fix.join("\n");
    return h("details", {class: `finding ${found.severity}`},
        h("summary", {}, h("strong", {}, found.severity), " ", found.kind.replaceAll("-", " "), found.subject ? `: ${text(found.subject)}` : ""),
        h("p", {}, text(found.figure)), h("p", {class: "hint"}, text(found.why)),
        fix ? h("pre", {}, text(fix, {lines: true})) : null, fix ? copyButton("the commands", () => fix) : null);
}

export function overview(place, main) {
    const figures = h("div", {});
    const findings = h("div", {class: "findings"}, h("p", {class: "hint"}, "Looking…"));
    const charts = [
        new Chart("Commands per second", history, ["commands"], rate),
        new Chart("Network, bytes per second", history, ["in", "out"], bytes),
        new Chart("Memory", history, ["used"], bytes),
        new Chart("Clients", history, ["connected", "blocked"], count),
    ];
    place.keep(...charts);
    main.append(h("h1", {}, "Overview"), figures, h("div", {class: "charts"}, ...charts.map((each) => each.element)),
        h("section", {"aria-label": "Findings"}, h("h2", {}, "Findings of streamd doctor"), findings));
    const begin = async () => {
        if (history.times.length) return;
        const kept = await place.get("history");
        history.begin(kept.times, (at, time) => ({
            commands: history.rate("commands", kept.total_commands_processed[at], time),
            in: history.rate("in", kept.total_net_input_bytes[at], time), out: history.rate("out", kept.total_net_output_bytes[at], time),
            used: kept.used_memory[at], connected: kept.connected_clients[at], blocked: kept.blocked_clients[at],
        }));
    };
    place.every(60000, async () => {
        const found = await place.get(`findings?db=${place.db}`).catch((error) => {
            if (error.status === 0 || error.status === 401 || error.status === undefined) throw error;
            return {findings: [], more: 0, refused: {[error.message]: ""}};
        });
        findings.replaceChildren(...found.findings.map(findingLine),
            ...(found.findings.length || Object.keys(found.refused).length ? [] : [h("p", {class: "hint"}, "No problems were found.")]),
            ...(found.more ? [h("p", {class: "hint"}, `${count(found.more)} more are not shown: streamd doctor lists them.`)] : []),
            ...(Object.keys(found.refused).length ? [h("p", {class: "hint"}, `Not looked at: ${Object.keys(found.refused).join(", ")}.`)] : []));
    });
    place.every(2000, async () => {
        await begin();
        const {info, keys, save} = await place.get("overview");
        const time = Date.now() / 1000;
        const cpu = history.rate("cpu", Number(info.used_cpu_sys) + Number(info.used_cpu_user), time);
        history.add(time, {
            commands: history.rate("commands", number(info.total_commands_processed), time),
            in: history.rate("in", number(info.total_net_input_bytes), time), out: history.rate("out", number(info.total_net_output_bytes), time),
            used: number(info.used_memory), connected: number(info.connected_clients), blocked: number(info.blocked_clients),
        });
        const saved = info.aof_enabled === "1" ? "append-only file" : save === "" ? "nothing: no save points"
            : number(info.rdb_last_save_time) ? `snapshot, ${count(number(info.rdb_changes_since_last_save))} changes since` : "nothing";
        const isWell = info.rdb_last_bgsave_status !== "err" && info.aof_last_write_status !== "err" && info.aof_last_bgrewrite_status !== "err";
        figures.replaceChildren(facts([
            ["Version", info.streamd_version ?? info.redis_version ?? "–", `Redis ${info.redis_version}`],
            ["Role", info.role === "slave" ? `replica, link ${info.master_link_status}` : `primary, ${amount(Number(info.connected_slaves ?? 0), "replica")}`],
            ["Up", duration(number(info.uptime_in_seconds))],
            ["Clients", `${count(number(info.connected_clients))} of ${count(number(info.maxclients))}`], ["Blocked", count(number(info.blocked_clients))],
            ["Memory", number(info.maxmemory) ? `${bytes(number(info.used_memory))} of ${bytes(number(info.maxmemory))}` : bytes(number(info.used_memory))],
            ["CPU", cpu === null ? "–" : `${Math.round(cpu * 100)} %`, "Of one processor"],
            ["Keys", short(Object.values(keys).reduce((total, each) => total + each, 0))],
            ["On disk", isWell ? saved : h("strong", {class: "bad"}, "the last write failed")],
            ["Errors", count(number(info.total_error_replies)), "Requests that were answered with an error"],
        ], "Of the server"));
        for (const chart of charts) chart.draw();
    });
}

export function clients(place, main) {
    const table = place.keep(new Table({
        label: "Clients", id: (row) => row.id, sort: "id", descending: false, most: tall(), empty: "There are no clients.",
        columns: [
            {id: "id", title: "ID", value: (row) => row.id, cell: (row) => String(row.id), width: 70, weight: 7},
            {id: "addr", title: "Address", isText: true, value: (row) => row.addr, cell: (row) => row.addr, width: 170, weight: 10, grows: 1},
            {id: "name", title: "Name", isText: true, value: (row) => row.name, cell: (row) => row.name, width: 110, weight: 6, grows: 1},
            {id: "user", title: "User", isText: true, value: (row) => row.user, cell: (row) => row.user, width: 90, weight: 4},
            {id: "cmd", title: "Command", isText: true, value: (row) => row.cmd, cell: (row) => row.cmd.replace("|", " "), width: 130, weight: 9},
            {id: "db", title: "DB", value: (row) => row.db, cell: (row) => String(row.db), width: 50, weight: 1},
            {id: "age", title: "Age", value: (row) => row.age, cell: (row) => duration(row.age), width: 84, weight: 3},
            {id: "idle", title: "Idle", value: (row) => row.idle, cell: (row) => duration(row.idle), width: 84, weight: 8},
            {id: "cmds", title: "Commands", value: (row) => row["tot-cmds"], cell: (row) => count(row["tot-cmds"]), width: 100, weight: 2},
            {id: "mem", title: "Memory", value: (row) => row["tot-mem"], cell: (row) => bytes(row["tot-mem"]), width: 90, weight: 5},
        ],
    }));
    const more = h("p", {class: "hint", hidden: true});
    main.append(h("h1", {}, "Clients"), table.element, more);
    place.every(5000, async () => {
        const found = await place.get("clients");
        table.set(found.clients);
        more.hidden = !found.more;
        more.textContent = `${count(found.more)} more are not shown.`;
    });
}

export function slowlog(place, main) {
    const line = (row) => row.words.map((each) => text(each)).join(" ");
    const table = place.keep(new Table({
        label: "Slow log", id: (row) => row.id, sort: "at", most: tall(), empty: "No command was slow.",
        columns: [
            {id: "at", title: "When", isText: true, value: (row) => row.at_s, cell: (row) => clock(new Date(row.at_s * 1000)), width: 155, weight: 8},
            {id: "took", title: "Took", value: (row) => row.took_us, cell: (row) => duration(row.took_us / 1e6), width: 80, weight: 9},
            {id: "words", title: "Command", isText: true, width: 140, weight: 10, grows: 1, cell: (row) => h("span", {class: "mono"}, line(row))},
            {id: "client", title: "Client", isText: true, value: (row) => row.client, cell: (row) => row.name || row.client, width: 160, weight: 1},
        ],
    }));
    main.append(h("h1", {}, "Slow log"), h("p", {class: "hint"}, "Commands that took longer than the setting slowlog-log-slower-than."), table.element);
    place.every(5000, async () => table.set((await place.get("slowlog")).slow));
}

export function settings(place, main) {
    let rows = [];
    const table = place.keep(new Table({
        label: "Settings", id: (row) => row.name, sort: "name", descending: false, most: tall(), empty: "No setting is like this.",
        columns: [
            {id: "name", title: "Setting", isText: true, value: (row) => row.name, width: 200, weight: 10, grows: 2,
                cell: (row) => h("span", {class: row.value === row.default ? "mono" : "mono changed"}, row.name)},
            {id: "value", title: "Value", isText: true, value: (row) => row.value, width: 110, weight: 9, grows: 2, cell: (row) => h("span", {class: "mono"}, row.value || "–")},
            {id: "default", title: "Default", isText: true, value: (row) => row.default, width: 150, weight: 2, grows: 1, cell: (row) => h("span", {class: "mono"}, row.default || "–")},
            {id: "doc", title: "What it is for", isText: true, isSentence: true, width: 300, weight: 1, grows: 4, cell: (row) => row.doc || "–"},
        ],
    }));
    const filter = h("input", {type: "search", placeholder: "Part of the name", "aria-label": "Show settings whose name contains", oninput: () => draw()});
    const changed = h("input", {type: "checkbox", onchange: () => draw()});
    const draw = () => table.set(rows.filter((row) => row.name.includes(filter.value.toLowerCase()) && (!changed.checked || row.value !== row.default)));
    main.append(h("div", {class: "title"}, h("h1", {}, "Settings"),
        h("div", {class: "tools"}, h("label", {class: "inline"}, changed, "changed only"), filter)), table.element);
    place.every(30000, async () => { rows = (await place.get("settings")).settings; draw(); });
}

export function memory(place, main) {
    const isBytes = /allocated|resident|active|bytes|buffer|backlog|overhead|clients|caches|VMs|links|dataset$/;
    const stats = place.keep(new Table({
        label: "What memory is used for", id: (row) => row.name, sort: "value", most: 14, empty: "Nothing is known.",
        columns: [
            {id: "name", title: "Figure", isText: true, value: (row) => row.name, cell: (row) => row.name, width: 180, weight: 10, grows: 3},
            {id: "value", title: "Value", value: (row) => row.figure, cell: (row) => row.shown, width: 130, weight: 9},
        ],
    }));
    const largest = place.keep(new Table({
        label: "Largest streams", id: (row) => text(row.key), sort: "bytes", most: 10, empty: "There are no streams here.",
        open: (row) => { location.hash = streamPath(place.db, row.key); },
        columns: [
            {id: "key", title: "Stream", isText: true, value: (row) => text(row.key), width: 150, weight: 10, grows: 3,
                cell: (row) => h("a", {href: streamPath(place.db, row.key), tabindex: "-1", class: "name"}, label(row.key))},
            {id: "bytes", title: "Memory", value: (row) => row.bytes, cell: (row) => bytes(row.bytes), width: 100, weight: 9},
            {id: "length", title: "Entries", value: (row) => row.length, cell: (row) => count(row.length), width: 110, weight: 8},
            {id: "each", title: "Per entry", value: (row) => row.length ? row.bytes / row.length : null,
                cell: (row) => row.length && row.bytes !== null ? bytes(Math.round(row.bytes / row.length)) : "–", width: 100, weight: 7},
        ],
    }));
    const figures = h("div", {});
    main.append(h("h1", {}, "Memory"), figures, h("section", {"aria-label": "Largest streams"}, h("h2", {}, "Largest streams"), largest.element),
        h("section", {"aria-label": "What it is used for"}, h("h2", {}, "What it is used for"), stats.element));
    place.every(5000, async () => {
        const {info} = await place.get("overview");
        figures.replaceChildren(facts([
            ["Used", bytes(number(info.used_memory))], ["Peak", bytes(number(info.used_memory_peak))],
            ["Of the process", bytes(number(info.used_memory_rss))], ["Limit", number(info.maxmemory) ? bytes(number(info.maxmemory)) : "none"],
            ["When it is reached", info.maxmemory_policy ?? "–"], ["Evicted keys", count(number(info.evicted_keys))],
        ], "Of memory"));
    });
    place.every(15000, async () => {
        const found = (await place.get("memory")).memory;
        stats.set(Object.entries(found).map(([name, value]) => ({name, figure: Number(value),
            shown: isBytes.test(name) && !/percentage|ratio|per-key/.test(name) ? bytes(Number(value)) : short(Number(value))})));
    });
    place.every(15000, async () => largest.set((await place.get(`streams?db=${place.db}`)).streams));
}
