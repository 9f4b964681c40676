//! The configuration of the server as text.

use super::{CERTIFICATE, DATA, KEY, PID, USERS};
use crate::names::{self, Name};
use crate::server::book::{Book, MAX_USERS, Role, User};
use std::path::Path;

/// Connections beyond those of the users: workers that reconnect before the server noticed that they were gone.
const SPARE_CONNECTIONS: usize = 96;
/// The most bytes on disk that streams and buckets take.
const MAX_STORE: u64 = 64 << 30;
/// The most bytes in memory that streams and buckets take. Only readers are kept in memory.
const MAX_MEMORY: u64 = 256 << 20;
/// The most bytes of one message. Journals are sent in smaller pieces.
const MAX_PAYLOAD: usize = 1 << 20;

/// Returns the configuration of a server. It includes the users, which change more often.
pub fn server(book: &Book, dir: &Path) -> String {
    let file = |name: &str| quoted(&dir.join(name).to_string_lossy());
    let port = book.listen.port;
    // Workers may know this machine by a name that is not an address of it.
    let host = if book.listen.is_local() { book.listen.host.as_str() } else { "0.0.0.0" };
    format!(
        "# The server of the dogwatch fleet {name}. You may change this file; `dogwatch fleet` writes only {users}.\n\
         server_name: {server_name}\n\
         listen: {listen}\n\
         pid_file: {pid}\n\
         max_connections: {connections}\n\
         max_payload: {MAX_PAYLOAD}\n\
         write_deadline: \"10s\"\n\
         ping_interval: \"20s\"\n\
         ping_max: 2\n\
         jetstream: {{\n  \
           store_dir: {data}\n  \
           max_memory_store: {MAX_MEMORY}\n  \
           max_file_store: {MAX_STORE}\n  \
           # A single server must write every message to disk before it confirms it. The default loses minutes of work\n  \
           # when the power fails.\n  \
           sync_interval: always\n\
         }}\n\
         tls: {{\n  \
           cert_file: {certificate}\n  \
           key_file: {key}\n  \
           timeout: 5\n\
         }}\n\
         authorization: {{\n  \
           timeout: 5\n  \
           include \"{users}\"\n\
         }}\n",
        name = book.name,
        users = USERS,
        server_name = quoted(book.name.as_str()),
        listen = quoted(&format!("{host}:{port}")),
        pid = file(PID),
        connections = MAX_USERS + SPARE_CONNECTIONS,
        data = file(DATA),
        certificate = file(CERTIFICATE),
        key = file(KEY),
    )
}

/// Returns the users of the server, each worker with the subjects that it may use.
pub fn users(book: &Book) -> String {
    let mut text = String::from(
        "# Written by `dogwatch fleet join` and `dogwatch fleet revoke`. The secrets are random and 256 bits long, so\n\
         # hashing them would only make connecting slow.\n\
         users: [\n",
    );
    for user in &book.users {
        let User { name, role, secret, accounts } = user;
        let (name_text, secret) = (quoted(name.as_str()), quoted(secret));
        match role {
            Role::Operator => text.push_str(&format!("  {{user: {name_text}, password: {secret}}}\n")),
            Role::Worker => {
                text.push_str(&format!("  {{user: {name_text}, password: {secret}, permissions: {{\n"));
                text.push_str(&permissions(name, accounts));
                text.push_str("  }}\n");
            }
        }
    }
    text.push_str("]\n");
    text
}

fn permissions(worker: &Name, accounts: &[Name]) -> String {
    let may = names::worker_permissions(worker, accounts);
    let list = |what: &str, subjects: &[String]| {
        let subjects: String =
            subjects.iter().map(|subject| format!("      {}\n", quoted(subject))).collect();
        format!("    {what}: {{allow: [\n{subjects}    ]}}\n")
    };
    // A worker answers the requests that reach it, once each.
    let answers = "    allow_responses: {max: 1, expires: \"10s\"}\n";
    list("publish", &may.publish) + &list("subscribe", &may.subscribe) + answers
}

/// Quotes a text for the server's configuration.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::audit::{self, Version};

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn book(listen: &str) -> Book {
        let listen = listen.parse().expect("a place");
        let mut book = Book::new(name("night"), listen, name("operator"), "s3cret".into());
        book.add_worker(name("anna"), vec![name("acme")], "s4cret".into()).expect("joins");
        book
    }

    #[test]
    fn the_configuration_of_a_server_is_this_file() {
        let text = server(&book("box1:4222"), Path::new("/srv/my \"fleet\""));
        assert_eq!(
            text,
            r#"# The server of the dogwatch fleet night. You may change this file; `dogwatch fleet` writes only users.conf.
server_name: "night"
listen: "0.0.0.0:4222"
pid_file: "/srv/my \"fleet\"/nats.pid"
max_connections: 4096
max_payload: 1048576
write_deadline: "10s"
ping_interval: "20s"
ping_max: 2
jetstream: {
  store_dir: "/srv/my \"fleet\"/data"
  max_memory_store: 268435456
  max_file_store: 68719476736
  # A single server must write every message to disk before it confirms it. The default loses minutes of work
  # when the power fails.
  sync_interval: always
}
tls: {
  cert_file: "/srv/my \"fleet\"/server.pem"
  key_file: "/srv/my \"fleet\"/server.key"
  timeout: 5
}
authorization: {
  timeout: 5
  include "users.conf"
}
"#
        );
        assert_eq!(audit::config(&text), None);
        assert!(audit::version(Version(2, 14, 0)).is_none());
    }

    #[test]
    fn a_server_for_this_machine_listens_on_no_other_interface() {
        let text = server(&book("127.0.0.1:4300"), Path::new("/srv"));
        assert!(text.contains("\nlisten: \"127.0.0.1:4300\"\n"), "{text}");
    }

    #[test]
    fn the_users_of_a_server_are_this_file() {
        let subjects = names::worker_permissions(&name("anna"), &[name("acme")]);
        let lines = |all: &[String]| all.iter().map(|s| format!("      \"{s}\"\n")).collect::<String>();
        let wanted = format!(
            "# Written by `dogwatch fleet join` and `dogwatch fleet revoke`. The secrets are random and 256 bits long, so\n\
             # hashing them would only make connecting slow.\n\
             users: [\n  \
               {{user: \"operator\", password: \"s3cret\"}}\n  \
               {{user: \"anna\", password: \"s4cret\", permissions: {{\n    \
                 publish: {{allow: [\n{}    ]}}\n    \
                 subscribe: {{allow: [\n{}    ]}}\n    \
                 allow_responses: {{max: 1, expires: \"10s\"}}\n  \
               }}}}\n\
             ]\n",
            lines(&subjects.publish),
            lines(&subjects.subscribe)
        );
        assert_eq!(users(&book("box1:4222")), wanted);
    }
}
