// Elements and figures. Text is only ever set as text: nothing from the server is read as HTML.

export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === undefined || value === null || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name in element && typeof value !== "string" && name !== "list") element[name] = value;
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((each) => each !== null && each !== undefined && each !== false));
    return element;
}

export function notify(message, isError = false) {
    const notice = document.getElementById("notice");
    notice.textContent = message;
    notice.classList.toggle("error", isError);
    clearTimeout(notify.timer);
    notify.timer = setTimeout(() => { notice.textContent = ""; }, isError ? 10000 : 4000);
}

const whole = new Intl.NumberFormat("en");
const UNKNOWN = "–";

export const count = (value) => value === null || value === undefined ? UNKNOWN : whole.format(value);

export const amount = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

// Three digits, or all of those before the point.
const three = (value) => {
    const size = Math.abs(value);
    return whole.format(Number(value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0)));
};

// A value in the unit in which it has one to four digits before the point.
function inUnit(value, step, units) {
    let power = 0;
    while (power < units.length - 1 && Math.abs(value) >= step - 0.5) { value /= step; power++; }
    return `${three(value)} ${units[power]}`.trim();
}

export function short(value) {
    if (value === null || value === undefined) return UNKNOWN;
    return Math.abs(value) < 10000 ? whole.format(Math.round(value * 10) / 10) : inUnit(value, 1000, ["", "k", "M", "G", "T"]);
}

export function bytes(value) {
    if (value === null || value === undefined) return UNKNOWN;
    return inUnit(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

const tenths = (value) => value < 99.95 ? value.toFixed(1) : whole.format(Math.round(value));

export function duration(seconds) {
    if (seconds === null || seconds === undefined) return UNKNOWN;
    if (seconds === 0) return "0 s";
    if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
        if (seconds >= 2 * size) return `${tenths(seconds / size)} ${unit}`;
    }
    return `${tenths(seconds)} s`;
}

export function rate(value) {
    return value === null || value === undefined ? UNKNOWN : short(Math.round(value * 10) / 10);
}

// The time of an entry ID; an ID that a producer has made up is none.
export function timeOf(id) {
    const ms = Number(String(id).split("-")[0]);
    return ms >= 1e12 && ms < Date.now() + 864e5 ? new Date(ms) : null;
}

const two = (value) => String(value).padStart(2, "0");

export function clock(date) {
    if (date === null) return UNKNOWN;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    if (new Date().toDateString() === date.toDateString()) return time;
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

// A list of figures: [[term, text or element], ...].
export function facts(pairs, label) {
    return h("dl", {class: "facts", "aria-label": label}, ...pairs.map(([term, value, title]) =>
        h("div", title ? {title} : {}, h("dt", {}, term), h("dd", {}, value))));
}

export function closeDialogs() {
    for (const each of document.querySelectorAll("dialog")) each.close();
}

// Put a text where others can take it from. Pages that were not loaded over HTTPS, or from this machine, have no clipboard of their own.
export async function copy(written) {
    try {
        if (navigator.clipboard) await navigator.clipboard.writeText(written);
        else {
            const area = h("textarea", {value: written, class: "away"});
            (document.querySelector("dialog[open]") ?? document.body).append(area);
            area.select();
            const isDone = document.execCommand("copy");
            area.remove();
            if (!isDone) throw new Error("The browser does not allow it.");
        }
        notify("Copied.");
    } catch (error) { notify(`Not copied: ${error.message}`, true); }
}

export const copyButton = (what, written) => h("button", {type: "button", class: "small", "aria-label": `Copy ${what}`, onclick: () => copy(written())}, "Copy");

// A dialog that ends with true when its button is pressed.
export function ask(title, body, action, {isDanger = false} = {}) {
    return new Promise((resolve) => {
        const dialog = h("dialog", {"aria-labelledby": "ask-title"},
            h("form", {method: "dialog", onsubmit: (event) => { event.preventDefault(); dialog.close("yes"); }},
                h("h2", {id: "ask-title"}, title), ...body,
                h("div", {class: "buttons"},
                    h("button", {type: "button", onclick: () => dialog.close("")}, "Cancel"),
                    h("button", {type: "submit", class: isDanger ? "danger" : "primary"}, action))));
        dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
        document.body.append(dialog);
        dialog.showModal();
    });
}
