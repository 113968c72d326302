// Names and values are bytes. In JSON they are text, {base64: ...} where they are no text, {start: ..., size: n} where they are cut;
// in addresses they are percent-encoded.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const ESCAPED = /\\x[89a-f][0-9a-f]/;       // as bytes that are no text are shown: see streamd/printable.py
const SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"};

const bytesOf = (name) => Uint8Array.from(atob(name.base64), (each) => each.charCodeAt(0));

// As it is shown: what could not be seen, or would turn the line round, as an escape.
export function text(name, {lines = false} = {}) {
    if (typeof name === "string") {
        return name.replace(HIDDEN, (each) => lines && (each === "\n" || each === "\t") ? each
            : SHORT[each] ?? `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
    }
    if (name.start !== undefined) return `${text(name.start, {lines})}…`;
    return Array.from(bytesOf(name), (each) => each >= 32 && each < 127 && each !== 92 ? String.fromCharCode(each)
        : `\\x${each.toString(16).padStart(2, "0")}`).join("");
}

// A name as it is shown: in quotes if there would be nothing to see, or not where it ends.
export function label(name) {
    const isLike = typeof name === "string" && ESCAPED.test(name);      // ... bytes that are no text, for which it is not to be taken
    const shown = text(isLike ? name.replaceAll("\\", "\\\\") : name);
    return shown === "" || /^\s|\s$/.test(shown) ? `"${shown}"` : shown;
}

// As part of an address.
export function encode(name) {
    if (typeof name === "string") return encodeURIComponent(name);
    return Array.from(bytesOf(name), (each) => `%${each.toString(16).padStart(2, "0")}`).join("");
}

// From a part of an address.
export function decode(encoded) {
    const bytes = [];
    for (let at = 0; at < encoded.length; at++) {
        if (encoded[at] === "%") {
            bytes.push(parseInt(encoded.slice(at + 1, at + 3), 16));
            at += 2;
        } else bytes.push(encoded.charCodeAt(at));
    }
    try {
        return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(Uint8Array.from(bytes));
    } catch {
        return {base64: btoa(String.fromCharCode(...bytes))};
    }
}
