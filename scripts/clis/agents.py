"""The four agent CLIs: the tested versions, and the settings that make each of them use a model on loopback.

All settings are in a separate home, as a user would have them, so that a loop file only needs `agent: codex`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


class Cli:
    """An agent CLI. `silence` is the tested `watchdog.idle`, longer than the CLI takes to start on a busy machine."""

    def __init__(self, name, package, version, silence, files, env):
        self.name, self.package, self.version, self.silence = name, package, version, silence
        self.files, self.env = files, env

    def install(self, below):
        """Installs the CLI into its own directory, once, and returns the directory of its program."""
        place = below / f"{self.name}-{self.version}"
        program = place / "node_modules" / ".bin" / self.name
        mark = place / "installed"
        if not mark.exists():
            place.mkdir(parents=True, exist_ok=True)
            # Some packages declare a newer node than they need.
            npm = ["npm", "install", "--no-audit", "--no-fund", "--force", "--prefix", str(place)]
            done = subprocess.run([*npm, f"{self.package}@{self.version}"], capture_output=True, text=True, timeout=600)
            if done.returncode != 0 or not program.exists():
                sys.exit(f"{self.package}@{self.version} failed to install:\n{done.stderr[-2000:]}")
            mark.write_text(done.stdout)
        return program.parent

    def settle(self, home, work, url):
        """Writes the user's settings and returns the files."""
        written = []
        for name, text in self.files(url, work).items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            written.append(path)
        return written


KEY = "made-up"
# An MCP server in the user's own settings of the CLI.
OWN = [sys.executable, str(Path(__file__).resolve().parent / "own_server.py")]


def claude_files(url, work):
    own = {"type": "stdio", "command": OWN[0], "args": OWN[1:]}
    return {
        ".claude/settings.json": json.dumps({"includeCoAuthoredBy": False}),
        ".claude.json": json.dumps({"mcpServers": {"mine": own}}),
    }


def claude_env(url):
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # Otherwise the CLI retries a refused login for minutes.
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }


def codex_files(url, work):
    # Codex would otherwise add the trust level of the project itself.
    return {
        ".codex/config.toml": f"""\
model = "gpt-5.5"
model_provider = "play"

[model_providers.play]
name = "play"
base_url = "{url}/v1"
env_key = "PLAY_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false
apps = false

[mcp_servers.mine]
command = "{OWN[0]}"
args = ["{OWN[1]}"]

[projects."{work}"]
trust_level = "trusted"
"""
    }


def opencode_files(url, work):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "play",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"one": {"name": "one", "limit": {"context": 200_000, "output": 32_000}, "cost": {"input": 3, "output": 15}}},
    }
    # opencode would otherwise add `$schema` itself.
    settings = {"$schema": "https://opencode.ai/config.json", "autoupdate": False, "share": "disabled", "model": "play/one", "small_model": "play/one"}
    settings.update(enabled_providers=["play"], provider={"play": provider})
    settings.update(mcp={"mine": {"type": "local", "command": OWN, "enabled": True}})
    return {".config/opencode/opencode.json": json.dumps(settings)}


def opencode_env(url):
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def gemini_files(url, work):
    settings = {
        "mcpServers": {"mine": {"command": OWN[0], "args": OWN[1:], "trust": True}},
        "model": {"name": "gemini-2.5-pro"},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        # Otherwise the CLI retries an overload for minutes.
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
    }
    return {".gemini/settings.json": json.dumps(settings)}


def gemini_env(url):
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}


CLIS = [
    Cli("claude", "@anthropic-ai/claude-code", "2.1.325", 12, claude_files, claude_env),
    Cli("codex", "@openai/codex", "0.166.0", 12, codex_files, lambda url: {"PLAY_API_KEY": KEY}),
    Cli("opencode", "opencode-ai", "1.18.33", 45, opencode_files, opencode_env),
    Cli("gemini", "@google/gemini-cli", "0.61.0", 20, gemini_files, gemini_env),
]


def environment(programs, home, more):
    """Returns the environment of a session. It takes only PATH from the caller, so that no account is ever used."""
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    own = {"PATH": path, "HOME": str(home), "TMPDIR": str(home / "tmp"), "LANG": "C.UTF-8", "TERM": "dumb", "USER": "tester"}
    # Keep the npm configuration: opencode downloads packages once in a new home.
    kept = {name: value for name, value in os.environ.items() if name.lower().startswith("npm_config_")}
    return {**kept, **own, **more}
