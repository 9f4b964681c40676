//! The files of the dashboard, embedded from `assets/`.

/// The maximum total size of all files in bytes, so that the page loads quickly.
pub const MAX_ASSETS: usize = 150 * 1024;

/// A file of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The request path.
    pub path: &'static str,
    /// The content type.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! assets {
    ($($kind:ident $path:literal = $file:literal),+ $(,)?) => {
        &[$(Asset { path: $path, content_type: $kind, bytes: include_bytes!(concat!("../assets/", $file)) }),+]
    };
}

const ALL: &[Asset] = assets![
    HTML "/" = "index.html",
    STYLE "/app/style.css" = "app/style.css",
    IMAGE "/app/icon.svg" = "app/icon.svg",
    SCRIPT "/app/text.js" = "app/text.js",
    SCRIPT "/app/dom.js" = "app/dom.js",
    SCRIPT "/app/time.js" = "app/time.js",
    SCRIPT "/app/words.js" = "app/words.js",
    SCRIPT "/app/evidence.js" = "app/evidence.js",
    SCRIPT "/app/model.js" = "app/model.js",
    SCRIPT "/app/lanes.js" = "app/lanes.js",
    SCRIPT "/app/graph.js" = "app/graph.js",
    SCRIPT "/app/list.js" = "app/list.js",
    SCRIPT "/app/api.js" = "app/api.js",
    SCRIPT "/app/output.js" = "app/output.js",
    SCRIPT "/app/steer.js" = "app/steer.js",
    SCRIPT "/app/state.js" = "app/state.js",
    SCRIPT "/app/keys.js" = "app/keys.js",
    SCRIPT "/app/forecast.js" = "app/forecast.js",
    SCRIPT "/app/frame.js" = "app/frame.js",
    SCRIPT "/app/overview.js" = "app/overview.js",
    SCRIPT "/app/run.js" = "app/run.js",
    SCRIPT "/app/main.js" = "app/main.js",
    SCRIPT "/app/report.js" = "app/report.js",
];

/// Returns all files. Each module comes after the modules that it imports.
pub fn all() -> &'static [Asset] {
    ALL
}

/// Returns the content type and the bytes for a request path: `/`, or a file below `/app/`.
pub fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    ALL.iter().find(|asset| asset.path == path).map(|asset| (asset.content_type, asset.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn only_listed_paths_are_served() {
        let (kind, page) = asset("/").expect("the page exists");
        assert_eq!(kind, HTML);
        assert!(page.starts_with(b"<!doctype html>"));
        for path in
            ["", "/app", "/app/", "/app/../Cargo.toml", "/index.html", "/app/main.js?x", "/APP/main.js"]
        {
            assert!(asset(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_asset_file_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let mut found = BTreeSet::from(["/".to_owned()]);
        for entry in std::fs::read_dir(root.join("app")).expect("the directory exists") {
            let name = entry.expect("a readable entry").file_name();
            found.insert(format!("/app/{}", name.to_str().expect("plain names")));
        }
        assert_eq!(found, all().iter().map(|asset| asset.path.to_owned()).collect());
    }

    /// Without preloading, the browser would request each module only after parsing the one that imports it.
    #[test]
    fn every_module_is_preloaded() {
        let page = std::str::from_utf8(asset("/").expect("the page exists").1).expect("UTF-8");
        let modules = all().iter().filter(|asset| asset.content_type == SCRIPT);
        for module in modules.filter(|asset| !matches!(asset.path, "/app/main.js" | "/app/report.js")) {
            let link = format!("<link rel=\"modulepreload\" href=\"{}\">", module.path);
            assert!(page.contains(&link), "{link}");
        }
    }

    #[test]
    fn total_asset_size_is_within_the_limit() {
        let sum: usize = all().iter().map(|asset| asset.bytes.len()).sum();
        assert!(sum <= MAX_ASSETS, "{sum} bytes");
    }

    /// Strings must become text, never markup or code.
    // promise: 8
    #[test]
    fn pages_never_turn_strings_into_markup_or_code() {
        const FORBIDDEN: [&str; 12] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "setHTML",
            "createContextualFragment",
            "eval(",
            "Function(",
            "javascript:",
            "srcdoc",
            "import(",
        ];
        for asset in all() {
            let text = std::str::from_utf8(asset.bytes).expect("UTF-8");
            let found = FORBIDDEN.iter().find(|word| text.contains(*word));
            assert!(found.is_none(), "{} contains {found:?}", asset.path);
            // The content security policy blocks these, and users would not see the error.
            assert!(
                !text.contains(" style=\"") && !text.contains(" onclick"),
                "{} has inline style or code",
                asset.path
            );
        }
    }
}
