// Entries: a page of them, followed live or looked at one by one.

import {Refused, get} from "./api.js";
import {amount, bytes, clock, copyButton, count, h, notify, timeOf} from "./dom.js";
import {indented} from "./json.js";
import {encode, label, text} from "./names.js";
import {Table} from "./table.js";

const FOLLOWED = 500;   // entries that are kept while a stream is followed

const isCut = (value) => value.size !== undefined;
const isLong = (value) => typeof value !== "string" || value.length > 200;      // or not text

export function fieldsText(entry) {
    const shown = entry.fields.map(([name, value]) => `${label(name)}: ${text(value)}`).join("  ");
    return entry.more_fields ? `${shown}  … ${count(entry.more_fields)} more` : shown;
}

export function entryTable(place, open, most = 12) {
    return new Table({
        label: "Entries", id: (row) => row.id, most, empty: "There are no entries here.", open,
        columns: [
            {id: "id", title: "ID", isText: true, width: 165, weight: 9,
                cell: (row) => h("span", {class: "mono"}, row.id)},
            {id: "time", title: "Time", isText: true, width: 150, weight: 1, cell: (row) => clock(timeOf(row.id))},
            {id: "fields", title: "Fields", isText: true, width: 120, weight: 8, grows: 1,
                cell: (row) => h("span", {class: "mono"}, fieldsText(row))},
        ],
    });
}

// A value as it is read: JSON with its parts on lines of their own.
export const valueText = (value) => value === "" ? '""' : text(typeof value === "string" ? indented(value) : value, {lines: true});

// All fields of an entry, in a dialog.
export async function showEntry(db, key, id) {
    let entry;
    try {
        entry = await get(`entry?db=${db}&key=${encode(key)}&id=${encodeURIComponent(id)}`);
    } catch (error) {
        if (!(error instanceof Refused)) throw error;
        notify(error.message, true);
        return;
    }
    const whole = (at) => `/api/value?db=${db}&key=${encode(key)}&id=${encodeURIComponent(id)}&field=${at}`;
    const fields = entry.fields.map(([name, value], at) => h("div", {class: "field"},
        h("dt", {class: "mono"}, label(name)),
        h("dd", {}, h("pre", {tabindex: "0", "aria-label": `Value of ${label(name)}`}, valueText(value)),
            isCut(value) ? null : copyButton(`the value of ${label(name)}`, () => text(value, {lines: true})), " ",
            isCut(value) ? h("p", {class: "hint"}, `The first part of ${bytes(value.size)}. `) : null,
            isLong(value) ? h("a", {href: whole(at), download: "value", class: "whole"}, isCut(value) ? "Save the whole value" : "Save") : null)));
    const dialog = h("dialog", {class: "entry", "aria-labelledby": "entry-title"},
        h("form", {method: "dialog", class: "title"},
            h("h2", {id: "entry-title", class: "mono"}, entry.id, copyButton("the ID", () => entry.id)), h("button", {type: "submit", "aria-label": "Close", autofocus: true}, "Close")),
        h("p", {class: "hint"}, timeOf(id) ? clock(timeOf(id)) : "The ID is not a time", ` · ${amount(entry.fields.length + entry.more_fields, "field")}`),
        h("dl", {class: "fields"}, ...fields),
        entry.more_fields ? h("p", {class: "hint"}, `${count(entry.more_fields)} more fields are not shown.`) : null);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}

// Where to start, from what was typed: an ID, a time of today or of a day, or how long ago; null if it is none of them.
export function startOf(written, now = new Date()) {
    const ago = /^-\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)$/.exec(written);
    if (ago) return String(Math.round(now.getTime() - ago[1] * {s: 1e3, m: 6e4, min: 6e4, h: 36e5, d: 864e5}[ago[2]]));
    if (written === "" || /^\d+(-\d+)?$/.test(written)) return written;
    const clockTime = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(written);
    if (clockTime) {
        const time = new Date(now);
        time.setHours(clockTime[1], clockTime[2], clockTime[3] ?? 0, 0);
        if (time > now) time.setDate(time.getDate() - 1);       // the last time that the clock showed it
        return clockTime[1] < 24 && clockTime[2] < 60 ? String(time.getTime()) : null;
    }
    const time = Date.parse(/^\d{4}-\d{2}-\d{2}$/.test(written) ? `${written}T00:00` : written.replace(" ", "T"));
    return Number.isNaN(time) ? null : String(time);
}

// The entries of a stream: pages, from the newest, or from an ID or a time; or followed live.
export function entryPages(place, db, key) {
    const table = place.keep(entryTable(place, (row) => showEntry(db, key, row.id)));
    const from = h("input", {placeholder: "ID, 12:30, or -1h", title: "An ID, a time (2026-01-31 12:00, 12:30), or how long ago (-90s, -30m, -1h, -2d)",
        "aria-label": "Show entries up to this ID or time", size: "18"});
    const wanted = h("input", {type: "search", placeholder: "Text, or field=text", "aria-label": "Search in the fields", size: "18",
        onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); search("", 0); } },
        onsearch: () => { if (!wanted.value) load(""); }});
    const note = h("span", {class: "hint", role: "status"});
    const newest = h("button", {type: "button", onclick: () => load("")}, "Newest");
    const older = h("button", {type: "button", disabled: true, onclick: () => further()}, "Older");
    const follow = h("button", {type: "button", "aria-pressed": "false", onclick: () => source ? stop() : start()}, "Follow");
    const tools = h("form", {class: "tools", onsubmit: (event) => { event.preventDefault(); go(); }},
        note, follow, newest, older, from, h("button", {type: "submit"}, "Go"),
        wanted, h("button", {type: "button", onclick: () => search("", 0)}, "Search"));
    let next = null, source = null, asked = 0;     // asked: what is shown is the answer to the last question
    let further = () => {};

    function go() {
        const start = startOf(from.value.trim());
        if (start === null) notify("Neither an ID nor a time. Examples: 1700000000000-0, 2026-01-31 12:00, 12:30, -1h.", true);
        else load(start);
    }

    // Entries that contain a text: on from an ID, after so many that were looked at.
    async function search(start, looked) {
        if (!wanted.value) return;
        stop();
        const number = ++asked;
        note.textContent = "Searching…";
        try {
            const found = await place.get(`search?db=${db}&key=${encode(key)}&text=${encodeURIComponent(wanted.value)}&start=${encodeURIComponent(start)}`);
            if (number !== asked) return;
            const seen = looked + found.looked;
            table.emptyText = "No match in the entries that were searched.";
            table.set(found.entries);
            table.body.scrollTop = 0;
            note.textContent = `${count(found.entries.length)} in ${amount(seen, "entry", "entries")}${found.next ? "; more with Older" : ""}`;
            older.disabled = found.next === null;
            further = () => search(found.next, seen);
        } catch (error) {
            if (number === asked) note.textContent = "";
            if (error instanceof Refused) notify(error.message, true);
            else if (error.name !== "AbortError") throw error;
        }
    }

    async function load(start) {
        stop();
        const number = ++asked;
        try {
            const found = await place.get(`entries?db=${db}&key=${encode(key)}&start=${encodeURIComponent(start)}`);
            if (number !== asked) return;
            table.set(found.entries);
            table.body.scrollTop = 0;
            next = found.next;
            further = () => load(next);
            older.disabled = next === null;
        } catch (error) {
            if (error instanceof Refused) notify(error.message, true);
            else if (error.name !== "AbortError") throw error;
        }
    }

    function start() {
        let shown = [], skipped = 0;
        asked++;
        source = new EventSource(`/api/tail?db=${db}&key=${encode(key)}`);
        source.addEventListener("entries", (event) => {
            const found = JSON.parse(event.data);
            skipped += found.skipped;
            shown = [...found.entries.reverse(), ...shown].slice(0, FOLLOWED);
            table.set(shown);
            note.textContent = skipped ? "Following; more come than are shown." : "Following.";
        });
        source.addEventListener("refused", (event) => { stop(); notify(JSON.parse(event.data).error, true); });
        source.addEventListener("error", () => { if (source?.readyState === EventSource.CLOSED) { stop(); notify("It cannot be followed now.", true); } });
        table.set([]);
        table.emptyText = "Entries will be shown here as they come.";
        table.draw();
        note.textContent = "Following.";
        follow.setAttribute("aria-pressed", "true");
        follow.textContent = "Stop";
        older.disabled = true;
    }

    function stop() {
        source?.close();
        source = null;
        note.textContent = "";
        table.emptyText = "There are no entries here.";
        follow.setAttribute("aria-pressed", "false");
        follow.textContent = "Follow";
    }

    place.keep({close: stop});
    load("");
    return h("section", {"aria-label": "Entries"}, h("div", {class: "title"}, h("h2", {}, "Entries"), tools), table.element);
}
