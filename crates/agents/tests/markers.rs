//! Which markers count, and which do not.

use dogwatch_agents::{Marker, last_marker};

const IDLE: &str = "<!-- ralph:state idle -->";

fn state(text: &str, structured: bool, prompt: &str) -> Option<String> {
    last_marker(text, structured, prompt).map(|marker| marker.state)
}

fn said(text: &str) -> Option<String> {
    state(text, true, "")
}

fn printed(text: &str) -> Option<String> {
    state(text, false, "")
}

#[test]
fn a_marker_has_a_state_and_attributes() {
    let marker = last_marker(
        r#"<!--  ralph:state  idle reason=no_pending_tasks note="two words" odd x= quote='a b' -->"#,
        true,
        "",
    )
    .expect("it is one");
    assert_eq!(marker.state, "idle");
    assert_eq!(marker.attr("reason"), Some("no_pending_tasks"));
    assert_eq!(marker.attr("note"), Some("two words"));
    assert_eq!(marker.attr("quote"), Some("a b"));
    assert_eq!(marker.attr("x"), Some(""));
    assert_eq!(marker.attr("odd"), None);
    assert_eq!(said("<!-- dogwatch:state done -->").as_deref(), Some("done"));
    assert_eq!(said("<!--ralph:state blocked-->").as_deref(), Some("blocked"));
    assert_eq!(said("<!-- ralph:state never_heard_of -->").as_deref(), Some("never_heard_of"));
}

#[test]
fn text_that_only_resembles_a_marker_does_not_count() {
    for text in [
        "",
        "<!-- ralph:state -->",
        "<!-- ralph:stateidle -->",
        "<!-- ralph:status idle -->",
        "<!-- state idle -->",
        "<!-- ralph:state idle",
        "ralph:state idle -->",
        "< !-- ralph:state idle -->",
        "<!-- ralph:state id!e -->",
        "<!-- ralph:state idle/../x -->",
    ] {
        assert_eq!(said(text), None, "{text}");
        assert_eq!(printed(text), None, "{text}");
    }
}

#[test]
fn the_content_of_a_marker_is_bounded() {
    let name = |length| format!("<!-- ralph:state {} -->", "n".repeat(length));
    assert!(said(&name(Marker::MAX_STATE)).is_some());
    assert!(said(&name(Marker::MAX_STATE + 1)).is_none());
    let attrs: String = (0..Marker::MAX_ATTRS + 5).map(|n| format!(" k{n}=v")).collect();
    let marker = last_marker(&format!("<!-- ralph:state idle{attrs} -->"), true, "").expect("it is one");
    assert_eq!(marker.attrs.len(), Marker::MAX_ATTRS);
    let long = format!("<!-- ralph:state idle {}={} -->", "k".repeat(200), "é".repeat(900));
    let marker = last_marker(&long, true, "").expect("it is one");
    assert!(marker.attrs[0].0.len() <= Marker::MAX_KEY && marker.attrs[0].1.len() <= Marker::MAX_VALUE);
    let quoted = format!("<!-- ralph:state idle {}='two words' -->", "k".repeat(200));
    assert_eq!(last_marker(&quoted, true, "").expect("it is one").attrs[0].1, "two words");
    assert!(said(&format!("<!-- ralph:state idle {} -->", "x".repeat(Marker::MAX_LEN))).is_none());
}

#[test]
fn the_last_marker_wins() {
    let both = format!("{IDLE}\nno:\n<!-- ralph:state blocked -->");
    assert_eq!(said(&both).as_deref(), Some("blocked"));
    assert_eq!(printed(&both).as_deref(), Some("blocked"));
    let same_line = format!("{IDLE} <!-- ralph:state blocked --> <!-- a comment -->");
    assert_eq!(said(&same_line).as_deref(), Some("blocked"));
}

#[test]
fn a_plain_agent_must_print_a_marker_on_its_own_line() {
    for (text, structured, plain) in [
        (format!("Done. {IDLE}"), true, false),
        (format!("Done.\n{IDLE}"), true, true),
        (format!("Done.\r\n  {IDLE}  \r\n\n"), true, true),
        (format!("- {IDLE}"), true, false),
        (format!("> {IDLE}"), false, false),
        (format!("{IDLE} {IDLE}"), true, false),
        (format!("```\n{IDLE}\n```"), false, false),
        (format!("~~~md\n{IDLE}\n~~~\n"), false, false),
        (format!("````\n```\n{IDLE}\n```\n````"), false, false),
        (format!("```\n~~~\n{IDLE}\n```"), false, false),
        (format!("```\ncode\n```\n{IDLE}"), true, true),
        (format!("  ```\n  code\n  ```\n{IDLE}"), true, true),
        (format!("```never closed\n{IDLE}"), false, false),
        (format!("use ```x``` so\n{IDLE}"), true, true),
        (format!("\u{1b}[32m{IDLE}\u{1b}[0m"), true, true),
    ] {
        assert_eq!(said(&text).is_some(), structured, "structured: {text}");
        assert_eq!(printed(&text).is_some(), plain, "plain: {text}");
    }
}

#[test]
fn a_marker_in_code_does_not_count() {
    for (text, structured, plain) in [
        // Between backticks, on one line and across the lines of a paragraph.
        (format!("I would print `{IDLE}` then."), false, false),
        (format!("`{IDLE}`"), false, false),
        (format!("``{IDLE} ` ``"), false, false),
        (format!("I would print `x\nor {IDLE}\nthen`."), false, false),
        (format!("Shown: `{IDLE}`. Said: {IDLE}"), true, false),
        (format!("Use `x` now. {IDLE}"), true, false),
        (format!("A lone ` here. {IDLE}"), true, false),
        (format!("A lone `` here. {IDLE} and a ` there."), true, false),
        (format!("An escaped \\` here. {IDLE} `"), true, false),
        // The next paragraph, and a line that begins with the comment, do not belong to the code before them.
        (format!("A lone ` here.\n\n{IDLE}\n\nAnd ` there."), true, true),
        (format!("A lone ` here.\n{IDLE}\nAnd ` there."), true, true),
        ("<!-- ralph:state idle note=`x -->`".to_owned(), true, false),
        // Indented by four columns or a tab, unless the line belongs to a paragraph or a list.
        (format!("    {IDLE}"), false, false),
        (format!("Example:\n\n    {IDLE}"), false, false),
        (format!("Example:\n\n\t{IDLE}\n\nEnd."), false, false),
        (format!("Example:\n\n    code\n    \n    {IDLE}"), false, false),
        (format!("   {IDLE}"), true, true),
        (format!("Nothing to do.\n    {IDLE}"), true, true),
        (format!("- one\n- two\n\n    {IDLE}"), true, true),
        (format!("10. ten\n\n    {IDLE}"), true, true),
        (format!("- one\n\n      {IDLE}"), false, false),
        (format!("- one\n  - two\n\n      {IDLE}"), true, true),
        (format!("- one\n\nText.\n\n    {IDLE}"), false, false),
        (format!("    code\n\n{IDLE}"), true, true),
    ] {
        assert_eq!(said(&text).is_some(), structured, "structured: {text}");
        assert_eq!(printed(&text).is_some(), plain, "plain: {text}");
    }
}

#[test]
fn unmatched_backticks_cost_linear_time() {
    let odd: String = (1..350).map(|n| format!("{} ", "`".repeat(n))).collect();
    assert_eq!(said(&format!("{odd}{IDLE}")).as_deref(), Some("idle"));
    assert_eq!(said(&format!("{}{IDLE}", "` `` ".repeat(12_000))), Some("idle".to_owned()));
}

#[test]
fn a_text_cut_inside_a_fence_keeps_its_marker() {
    let cut = format!("{}\n```\nDone.\n{IDLE}", "code();\n".repeat(64 * 1024 / 8));
    let cut = &cut[cut.len() - 64 * 1024..];
    assert_eq!(printed(cut).as_deref(), Some("idle"));
}

#[test]
fn loop_63_an_echoed_prompt_does_not_count() {
    for prompt in [
        format!("Do the work.\n\nIf there is none, print\n{IDLE}\nand stop."),
        format!("Do the work. If there is none, print\n{IDLE}"),
        format!("{IDLE}\nis what you print when there is nothing to do."),
        format!("When idle:\n\n{IDLE}\n\nWhen blocked:\n\n<!-- ralph:state blocked -->\n\nGo."),
        IDLE.to_owned(),
    ] {
        assert_eq!(state(&prompt, false, &prompt), None, "cat: {prompt}");
        let framed = format!("Reading the prompt.\n{prompt}\nWorking.\nDone.");
        if prompt != IDLE {
            assert_eq!(state(&framed, false, &prompt), None, "echo: {prompt}");
            assert_eq!(state(&framed, true, &prompt), None, "quoted: {prompt}");
        }
        let own = format!("{prompt}\nNothing to do.\n{IDLE}\n");
        assert_eq!(state(&own, false, &prompt).as_deref(), Some("idle"), "echo, then its own: {prompt}");
    }
}

#[test]
fn loop_63_a_marker_requested_by_the_prompt_counts() {
    let prompt = format!("Do the work. If there is none, print\n{IDLE}\nand stop.");
    for text in [IDLE.to_owned(), format!("Nothing to do.\n{IDLE}"), format!("Looked.\n{IDLE}\nBye.")] {
        assert_eq!(state(&text, false, &prompt).as_deref(), Some("idle"), "{text}");
        assert_eq!(state(&text, true, &prompt).as_deref(), Some("idle"), "{text}");
    }
    assert_eq!(state(IDLE, true, IDLE).as_deref(), Some("idle"));
}

#[test]
fn no_text_causes_a_panic() {
    let parts = [
        "<!--",
        "-->",
        " ralph:state ",
        "idle",
        "k=",
        "\"",
        "'",
        "\n",
        "```",
        "~~~",
        ">",
        "é",
        "=",
        "\u{1b}[",
        "`",
        "\\",
        "\n\n    ",
        "1. ",
    ];
    for a in parts {
        for b in parts {
            for c in parts {
                for d in ["idle -->", "=\"é", "'"] {
                    let text = format!("<!-- ralph:state {a}{b}{c}{d}{a}");
                    last_marker(&text, true, &text);
                    last_marker(&text, false, &text);
                }
            }
        }
    }
}

#[test]
fn an_echo_of_a_prompt_with_invisible_characters_is_not_a_marker() {
    // A family emoji contains zero-width joiners; the escape is a color.
    for odd in ["\u{1f468}\u{200d}\u{1f469}", "\u{1b}[1mbold\u{1b}[0m", "bell\u{7}"] {
        let prompt = format!("{odd} first\n<!-- ralph:state idle -->\n{odd} last");
        for structured in [false, true] {
            assert_eq!(last_marker(&prompt, structured, &prompt), None, "{odd:?}");
        }
    }
}
