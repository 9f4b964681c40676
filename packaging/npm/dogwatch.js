#!/usr/bin/env node
// Starts the dogwatch binary of this platform, which is in an optional dependency of this package.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");

const PACKAGES = { "linux-x64": "dogwatch-linux-x64" };
const platform = `${process.platform}-${process.arch}`;

function binary() {
  const name = PACKAGES[platform];
  if (!name) {
    console.error(`error: there is no dogwatch for ${platform}`);
    console.error(`help: it runs on ${Object.keys(PACKAGES).join(", ")}; build it from source elsewhere`);
    process.exit(2);
  }
  try {
    return require.resolve(`${name}/dogwatch`);
  } catch {
    console.error(`error: the package ${name} is not installed`);
    console.error("help: install dogwatch without --omit=optional (npm) or --no-optional (yarn, pnpm)");
    process.exit(2);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both processes. Passing it on would send it twice, and dogwatch would stop at once.
const terminal = [0, 1, 2].some((fd) => isatty(fd));
process.on("SIGINT", () => terminal || child.kill("SIGINT"));
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: cannot start dogwatch: ${error.message}`);
  process.exit(5);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
