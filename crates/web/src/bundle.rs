//! Bundles the modules into one script, for a page without a server.
//!
//! The modules use a single style of imports and exports, which a test enforces, so this needs no parser. Each module
//! becomes a function that returns its exports.

use crate::assets::{Asset, all};

/// Modules that only the served page needs.
const NOT_IN_A_REPORT: [&str; 2] = ["/app/main.js", "/app/overview.js"];

/// Returns one script with `report.js` and everything that it imports.
pub(crate) fn script() -> String {
    let modules = all().iter().filter(|a| a.path.ends_with(".js") && !NOT_IN_A_REPORT.contains(&a.path));
    modules.map(|module| wrapped(name(module), text(module))).collect()
}

/// Returns the style sheet.
pub(crate) fn style() -> &'static str {
    all().iter().find(|asset| asset.path == "/app/style.css").map_or("", text)
}

fn text(asset: &Asset) -> &'static str {
    std::str::from_utf8(asset.bytes).unwrap_or_default()
}

/// Returns the module name: `words` for `/app/words.js`.
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

/// Returns the name of a declaration: `follow` for `async function follow(…`.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.find(|word| !["async", "function", "const", "class", ""].contains(word))
}

/// Translates an import: `import { a } from "./b.js";` becomes `const { a } = $b;`.
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

    /// The list is in dependency order, which excludes import cycles.
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
