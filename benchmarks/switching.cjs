// The load of switching.py from a Node client of a cluster: node switching.cjs ioredis|redis PORT SECONDS RATE
// Ten writers append to a stream each. Prints a line of JSON for each second, and one with what was answered.
const [library, port, seconds, rate] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const WRITERS = 10;

async function connect() {
    const place = { host: "127.0.0.1", port };
    if (library === "ioredis") {
        const { Cluster } = require("ioredis");
        const client = new Cluster([place]);
        client.on("error", () => {});
        return { xadd: (stream) => client.xadd(stream, "*", "n", "1"), close: () => client.disconnect() };
    }
    const { createCluster } = require("redis");
    const client = createCluster({ rootNodes: [{ socket: place }] });
    client.on("error", () => {});
    await client.connect();
    return { xadd: (stream) => client.xAdd(stream, "*", { n: "1" }), close: () => client.destroy() };
}

async function main() {
    const client = await connect();
    const begun = performance.now();
    const found = new Map(), done = {};
    const write = async (stream) => {
        while (performance.now() < begun + 1000 * seconds) {
            const start = performance.now();
            const second = Math.floor((start - begun) / 1000);
            if (!found.has(second)) found.set(second, { second, requests: 0, errors: 0, longest: 0, error: "" });
            const noted = found.get(second);
            try {
                await client.xadd(stream);
                done[stream] = (done[stream] ?? 0) + 1;
            } catch (error) {
                noted.errors += 1;
                noted.error ||= String(error);
            }
            const took = performance.now() - start;
            noted.requests += 1;
            noted.longest = Math.max(noted.longest, took);
            await new Promise((resolve) => setTimeout(resolve, Math.max(0, (1000 * WRITERS) / rate - took)));
        }
    };
    await Promise.all(Array.from({ length: WRITERS }, (_, number) => write(`node-${number}`)));
    for (const noted of found.values()) console.log(JSON.stringify(noted));
    console.log(JSON.stringify({ done }));
    client.close();
}

main().then(() => process.exit(0));
