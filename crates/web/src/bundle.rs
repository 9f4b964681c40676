//! The modules in one piece, for a page that has nobody to ask for them.
//!
//! The modules keep to one way of writing imports and exports (a test holds them to it), so that this needs no
//! parser: each becomes a function that answers what it exports.

use crate::assets::{Asset, all};

/// What only the served page needs.
const NOT_IN_A_REPORT: [&str; 2] = ["/app/main.js", "/app/overview.js"];

/// One script that does what `report.js` does.
pub(crate) fn script() -> String {
    let modules = all().iter().filter(|a| a.path.ends_with(".js") && !NOT_IN_A_REPORT.contains(&a.path));
    modules.map(|module| wrapped(name(module), text(module))).collect()
}

pub(crate) fn style() -> &'static str {
    all().iter().find(|asset| asset.path == "/app/style.css").map_or("", text)
}

fn text(asset: &Asset) -> &'static str {
    std::str::from_utf8(asset.bytes).unwrap_or_default()
}

/// `/app/words.js` is `words`.
fn name(asset: &Asset) -> &'static str {
    asset.path.trim_start_matches("/app/").trim_end_matches(".js")
}

fn wrapped(name: &str, source: &str) -> String {
    let mut exports = Vec::new();
    let mut body = String::with_capacity(source.len() + 256);
    for line in source.lines() {
        let line = match line.strip_prefix("export ") {
            Some(rest) => {
                exports.extend(declared(rest));
                rest.to_owned()
            }
            None => imported(line).unwrap_or_else(|| line.to_owned()),
        };
        body.push_str(&line);
        body.push('\n');
    }
    format!("const ${name} = (() => {{\n{body}return {{ {} }};\n}})();\n", exports.join(", "))
}

/// The name that a declaration gives: `async function follow(…` gives `follow`.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.find(|word| !["async", "function", "const", "class", ""].contains(word))
}

/// `import { a } from "./b.js";` takes from what the function of `b` answered.
fn imported(line: &str) -> Option<String> {
    let (what, from) = line.strip_prefix("import ")?.split_once(" from ")?;
    let module = from.trim_start_matches("\"./").trim_end_matches(';').trim_end_matches(".js\"");
    Some(format!("const {} = ${module};", what.strip_prefix("* as ").unwrap_or(what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_and_exports_become_local_names() {
        let source = "import { el, put } from \"./dom.js\";\nimport * as api from \"./api.js\";\n\
                      export const A = 1;\nexport async function go(x) {}\nexport class B {}\nfunction own() {}\n";
        let seen = wrapped("page", source);
        for line in ["const { el, put } = $dom;", "const api = $api;", "const A = 1;", "return { A, go, B };"]
        {
            assert!(seen.contains(line), "{line} is missing in {seen}");
        }
        assert!(!seen.contains("import ") && !seen.contains("export "));
    }

    /// What a module needs stands before it: the list is in order, and nothing goes round in a circle.
    #[test]
    fn modules_import_only_earlier_modules() {
        let mut known: Vec<&str> = Vec::new();
        for asset in all().iter().filter(|asset| asset.path.ends_with(".js")) {
            for line in text(asset).lines().filter(|line| line.starts_with("import")) {
                let from = line.rsplit("\"./").next().and_then(|rest| rest.strip_suffix(".js\";"));
                assert!(from.is_some_and(|from| known.contains(&from)), "{}: {line}", asset.path);
            }
            known.push(name(asset));
        }
    }

    #[test]
    fn a_report_cannot_end_its_own_script_element() {
        let script = script();
        for end in ["</script", "<!--", "<script"] {
            assert!(!script.to_lowercase().contains(end), "{end}");
        }
        assert!(!style().contains("</"));
    }
}
