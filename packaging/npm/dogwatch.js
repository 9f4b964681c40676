#!/usr/bin/env node
// Starts the dogwatch binary of this platform, which is in an optional dependency of this package.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");

const PACKAGES = { "linux-x64": "dogwatch-linux-x64" };
const platform = `${process.platform}-${process.arch}`;

function fail(code, error, help) {
  console.error(`error: ${error}`);
  if (help) console.error(`help: ${help}`);
  process.exit(code);
}

// The binary needs glibc. Package managers leave it out on a system with musl, or it does not start there.
function refuseMusl() {
  if (process.report.getReport().header.glibcVersionRuntime) return;
  fail(2, "there is no dogwatch for musl", "use a system with glibc, such as the image node:slim, or build it from source");
}

function binary() {
  const name = PACKAGES[platform];
  if (!name) {
    const known = Object.keys(PACKAGES).join(", ");
    fail(2, `there is no dogwatch for ${platform}`, `it runs on ${known}; build it from source elsewhere`);
  }
  try {
    return require.resolve(`${name}/dogwatch`);
  } catch {
    refuseMusl();
    fail(2, `the package ${name} is not installed`, "install dogwatch without --omit=optional (npm) or --no-optional (yarn, pnpm)");
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both processes. Passing it on would send it twice, and dogwatch would stop at once.
const terminal = [0, 1, 2].some((fd) => isatty(fd));
process.on("SIGINT", () => terminal || child.kill("SIGINT"));
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  refuseMusl();
  fail(5, `cannot start dogwatch: ${error.message}`);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
