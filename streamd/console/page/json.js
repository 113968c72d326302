// JSON with its parts on lines of their own. The text is only spaced anew: numbers of any length and repeated names stay as they are.

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gu;
const MOST = 100_000;   // characters; longer texts stay as they are

export function indented(text) {
    if (text.length > MOST || !/^\s*[{[]/.test(text)) return text;
    try { JSON.parse(text); } catch { return text; }
    const tokens = text.match(TOKENS);
    let depth = 0, out = "";
    const line = () => `\n${"  ".repeat(depth)}`;
    tokens.forEach((token, at) => {
        const isEmpty = (token === "{" && tokens[at + 1] === "}") || (token === "[" && tokens[at + 1] === "]");
        if (token === "}" || token === "]") {
            if (!/[{[]/.test(tokens[at - 1]) || tokens[at - 1].length > 1) { depth--; out += line(); }
            out += token;
        } else if (token === "{" || token === "[") {
            out += token;
            if (!isEmpty) { depth++; out += line(); }
        } else if (token === ",") out += token + line();
        else out += token === ":" ? ": " : token;
    });
    return out;
}
