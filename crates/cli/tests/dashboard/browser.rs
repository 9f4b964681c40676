//! Drives a real Chromium through a pipe. Requests and answers are JSON documents, each terminated by a NUL byte.

use crate::kit::{Project, TIMEOUT};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Starts Chromium headless, for any user, without network requests by the browser itself. The pipe uses descriptors 3 and 4.
const CHROMIUM: &str = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars --no-zygote \
    --host-resolver-rules=\"$RULES\" --user-data-dir=\"$PROFILE\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A browser with one page.
pub struct Page {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    calls: u64,
    session: Option<String>,
    /// The errors, exceptions and policy violations that the page reported.
    pub errors: Vec<String>,
}

impl Page {
    /// Starts the browser.
    pub fn open(project: &Project) -> Page {
        Page::open_with(project, "")
    }

    /// Starts the browser with rules that map addresses to others.
    pub fn open_with(project: &Project, rules: &str) -> Page {
        let mut command = Command::new("sh");
        project.set_environment(&mut command);
        command.args(["-c", CHROMIUM]).env("PROFILE", project.outside("browser")).env("TZ", "UTC");
        command.env("RULES", rules);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("sh is installed");
        let to = child.stdin.take().expect("piped");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                if serde_json::from_slice(&message).is_ok_and(|value: Value| sender.send(value).is_err()) {
                    return;
                }
                message.clear();
            }
        });
        let mut page = Page { child, to, from, calls: 0, session: None, errors: Vec::new() };
        page.attach();
        page
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            self.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.size(1280, 900);
        self.set_color_scheme("dark");
    }

    /// Calls a method of the DevTools protocol and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.expect("chromium takes requests: is the package `chromium` installed?");
        let until = Instant::now() + TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(left).unwrap_or_else(|e| {
                panic!("no answer to {method} ({e}): is the package `chromium` installed?")
            });
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Returns the processor time that the page's main thread has used, in milliseconds. It does not depend on the load
    /// of the machine.
    pub fn cpu_ms(&mut self) -> f64 {
        self.call("Performance.enable", json!({"timeDomain": "threadTicks"}));
        let metrics = self.call("Performance.getMetrics", json!({}));
        let all = metrics["metrics"].as_array().into_iter().flatten();
        let task = all.into_iter().find(|metric| metric["name"] == "TaskDuration");
        task.and_then(|metric| metric["value"].as_f64()).expect("the time of all tasks") * 1_000.0
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let error = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => Some(params["args"].to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                Some(params["entry"].to_string())
            }
            _ => None,
        };
        self.errors.extend(error);
    }

    /// Navigates to a URL.
    pub fn go(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{url}: {}", gone["errorText"]);
    }

    /// Sets the size of the window.
    pub fn size(&mut self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", params);
    }

    /// Sets the preferred color scheme of the system: `dark` or `light`.
    pub fn set_color_scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Evaluates an expression in the page and returns its value. Awaits a promise.
    #[track_caller]
    pub fn eval(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{script}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Evaluates an expression that returns a string.
    #[track_caller]
    pub fn text(&mut self, script: &str) -> String {
        let value = self.eval(script);
        value.as_str().unwrap_or_else(|| panic!("{script} is {value}, no text")).to_owned()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub fn wait(&mut self, condition: &str, what: &str) {
        let patience = TIMEOUT.as_millis() - 2000;
        // The page evaluates the condition in every frame. Navigation discards the script, so it is sent again.
        let script = format!(
            "new Promise((done) => {{ const till = performance.now() + {patience}; \
             const look = () => {{ let is = false; try {{ is = Boolean({condition}); }} catch {{}} \
             if (is || performance.now() > till) done(is); else setTimeout(look, 30); }}; look(); }})"
        );
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        if self.call("Runtime.evaluate", params)["result"]["value"] != true {
            self.screenshot("failed");
            let text = self.eval("document.body.innerText.slice(0, 3000)");
            panic!("{what} did not happen; errors: {:?}; the page says:\n{text}", self.errors);
        }
    }

    /// Waits until the page shows this text.
    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait(&format!("document.body.innerText.includes({})", Value::from(text)), text);
    }

    /// Clicks the center of the first element that matches a selector.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            Value::from(selector)
        ));
        self.mouse(place[0].as_f64().expect("a place"), place[1].as_f64().expect("a place"), true);
    }

    /// Moves the mouse to a position and optionally clicks.
    pub fn mouse(&mut self, x: f64, y: f64, click: bool) {
        let kinds: &[&str] =
            if click { &["mouseMoved", "mousePressed", "mouseReleased"] } else { &["mouseMoved"] };
        for kind in kinds {
            let button = if *kind == "mouseMoved" { "none" } else { "left" };
            let params = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// Presses a key: a character, or a name such as `Enter`.
    pub fn key(&mut self, key: &str) {
        let mut params = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            params["text"] = json!(key);
        }
        if key == "Enter" {
            params["text"] = json!("\r");
        }
        // Without a key code, Chromium does not perform the default action of these keys.
        let numbers = [("Enter", 13), ("Escape", 27), ("ArrowUp", 38), ("ArrowDown", 40)];
        if let Some((_, number)) = numbers.iter().find(|(name, _)| *name == key) {
            params["windowsVirtualKeyCode"] = json!(number);
        }
        self.call("Input.dispatchKeyEvent", params.clone());
        params["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", params);
    }

    /// Types text into the focused element.
    pub fn type_in(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Saves a screenshot under `target/screens/` and returns its path.
    pub fn screenshot(&mut self, name: &str) -> PathBuf {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let png = decoded(shot["data"].as_str().expect("base 64"));
        let dir = target().join("screens");
        std::fs::create_dir_all(&dir).expect("a directory below target");
        let path = dir.join(format!("{name}.png"));
        std::fs::write(&path, png).expect("a picture is small");
        path
    }

    /// Asserts that the page reported no errors.
    #[track_caller]
    pub fn assert_no_errors(&mut self) {
        // This round trip makes sure that all earlier messages have been read.
        self.eval("true");
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns Cargo's target directory, which contains the test binary.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).map(Path::to_owned).expect("target/debug/deps/test")
}

fn decoded(base64: &str) -> Vec<u8> {
    let six = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::with_capacity(base64.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for value in base64.bytes().filter_map(six) {
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).expect("eight bits"));
        }
    }
    out
}
