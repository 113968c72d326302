// What the stories of both libraries have in common. A story is an async function of the server's port; it fails by
// throwing. It and the test that plays it take turns: `tell` prints a line, `hear` waits for one.
"use strict";

const readline = require("node:readline");

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

exports.tell = (text) => process.stdout.write(text + "\n");

exports.hear = async (expected) => {
  const { value } = await lines.next();
  if (value !== expected) throw new Error(`heard ${value} instead of ${expected}`);
};

/** Wait until `condition()` is true; it may be asynchronous. `what` may be a function, for what is only known then. */
exports.until = async (condition, what) => {
  const deadline = Date.now() + 60000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${typeof what === "function" ? what() : what} did not come true`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

/** Play the story that the command line names: `node FILE STORY PORT`. */
exports.play = (stories) => {
  const [name, port] = process.argv.slice(2);
  stories[name](Number(port)).then(
    () => {
      exports.tell("done");
      process.exit(0);
    },
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
};
