//! A remote server behind the MCP proxy: TLS, a certificate, and a key that is in no file.

use crate::kit::{GRACES, Project, all};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// An HTTPS server that answers requests with the right key. It prints its port.
const FAR: &str = r#"
import http.server, json, ssl, sys
class Far(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def tell(self, status, result=None, id=None):
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() if result else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer open sesame":
            return self.tell(401)
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}}
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "greetings from afar"}]}
        else:
            return self.tell(202)
        self.tell(200, result, message["id"])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Far)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// An agent that lists the tools, calls `greet`, and writes the results to a file.
const AGENT: &str = r#"
import json, os, subprocess, sys
sys.stdin.read()
server = subprocess.Popen([os.environ["BIN"], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
number = 0
def ask(method, params):
    global number
    number += 1
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
    server.stdin.write(line.encode())
    server.stdin.flush()
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer
ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
names = [tool["name"] for tool in ask("tools/list", {})["result"]["tools"]]
answer = ask("tools/call", {"name": "greet", "arguments": {}})
open(os.environ["ANSWERS"], "w").write(json.dumps([names, answer]))
server.stdin.close()
assert server.wait() == 0
"#;

/// The server process. Killed when the test ends.
struct Far {
    process: Child,
    port: u16,
}

impl Far {
    fn start() -> Far {
        let certificate = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/tls/server.pem");
        let mut process = Command::new("python3")
            .args(["-c", FAR, certificate])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        let out = process.stdout.take().expect("asked for");
        BufReader::new(out).read_line(&mut line).expect("the server prints its address");
        Far { process, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_https_server_is_called_with_its_key_and_an_untrusted_one_is_not() {
    let far = Far::start();
    let project = Project::new();
    project.file("agent.py", AGENT);
    let (bin, answers) = (env!("CARGO_BIN_EXE_dogwatch"), project.outside("answers"));
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/tls/authority.pem");
    let line = format!(
        "env BIN={bin} ANSWERS={} FAR_KEY='open sesame' SSL_CERT_FILE={authority} python3 agent.py",
        answers.display()
    );
    // The certificate is for `localhost` and must not be accepted for another name.
    let front = format!(
        "agent: {}\nmcp:\n  servers:\n    far:\n      url: https://localhost:{port}/mcp\n      headers: {{Authorization: \"Bearer ${{FAR_KEY}}\"}}\n    \
         other: {{url: \"https://127.0.0.1:{port}/mcp\"}}\n    keyless: {{url: \"https://localhost:{port}/mcp\"}}\n{GRACES}",
        json!(line),
        port = far.port
    );
    project.ralph(&front, "go");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let text = std::fs::read_to_string(answers).expect("the answers are saved");
    let results: Value = serde_json::from_str(&text).expect("JSON");
    assert!(results[0].as_array().expect("names").contains(&json!("greet")), "{results}");
    assert_eq!(results[1]["result"]["content"][0]["text"], "greetings from afar");
    let events = done.events();
    let reports: Vec<&str> =
        all(&events, "agent_reported").iter().filter_map(|event| event["text"].as_str()).collect();
    let reported =
        |name: &str, why: &str| reports.iter().any(|text| text.starts_with(name) && text.contains(why));
    assert!(reported("other: ", "no trusted TLS connection"), "{reports:?}");
    assert!(reported("keyless: ", "answered with status 401"), "{reports:?}");
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("the record");
    assert!(!journal.contains("Bearer open"), "the record holds the key of a server");
    project.assert_no_process_left();
}
