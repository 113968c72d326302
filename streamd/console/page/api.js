// Requests to the server that the page came from.

export class Refused extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

export const session = {user: null, proof: null, writes: false, is_cluster: false};

async function send(method, path, body, signal) {
    const headers = {};
    if (method !== "GET") headers["Content-Type"] = "application/json";
    if (session.proof !== null) headers["X-Console-Proof"] = session.proof;
    let response;
    try {
        response = await fetch(`/api/${path}`, {
            method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
        });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refused(0, "The server does not answer.");
    }
    let value;
    try {
        value = await response.json();
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refused(0, "The answer broke off.");
    }
    if (!response.ok) throw new Refused(response.status, value.error);
    return value;
}

export const get = (path, signal) => send("GET", path, undefined, signal);
export const post = (path, body) => send("POST", path, body);

export async function resume() {
    try {
        Object.assign(session, await send("GET", "session"));
    } catch (error) {
        if (error.status !== 401) throw error;
        await logIn();      // as the default user, if it needs no password
    }
}

export async function logIn(user, password) {
    session.proof = null;
    Object.assign(session, await send("POST", "session", password === undefined ? {} : {user, password}));
}

export async function logOut() {
    await send("DELETE", "session", {});
    session.proof = session.user = null;
}
