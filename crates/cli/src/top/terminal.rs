//! The terminal: `top` switches it to raw mode and the alternate screen, and restores it however `top` ends.

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// The original terminal settings. `None` while the terminal is not taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// A guard for the taken terminal. Dropping it restores the terminal, and so does a panic.
pub struct Taken(());

impl Taken {
    /// Switches the terminal to raw mode and to the alternate screen.
    pub fn take() -> io::Result<Taken> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Restore first, so that the panic message is readable.
            give_back();
            hook(panic);
        }));
        enter()?;
        Ok(Taken(()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Switches to raw mode and the alternate screen.
pub fn enter() -> io::Result<()> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut raw = before.clone();
    raw.make_raw();
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(before);
    tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
    io::stdout().write_all(ENTER)?;
    io::stdout().flush()
}

/// Restores the terminal. A second call does nothing.
pub fn give_back() {
    let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    // If the terminal is gone, there is nothing to restore.
    let _ = io::stdout().write_all(LEAVE).and_then(|()| io::stdout().flush());
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
}

/// The backend for ratatui: it turns changed cells into escape sequences.
#[derive(Debug, Default)]
pub struct Tty {
    out: Vec<u8>,
}

impl Tty {
    fn put(&mut self, text: &str) -> io::Result<()> {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Backend for Tty {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                write!(self.out, "\x1b[{};{}H", y + 1, x + 1)?;
            }
            if style != Some((cell.fg, cell.modifier)) {
                self.put(&sgr(cell.fg, cell.modifier))?;
                style = Some((cell.fg, cell.modifier));
            }
            self.put(cell.symbol())?;
            // The cursor position after a wide character is uncertain, so the next cell sets it again.
            let wide = unicode_width::UnicodeWidthStr::width(cell.symbol()) != 1;
            next = (!wide).then_some((x + 1, y));
        }
        self.put("\x1b[0m")
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25h")
    }

    /// Returns a fixed position: the cursor is hidden, and every drawing sets its own start.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        write!(self.out, "\x1b[{};{}H", y + 1, x + 1)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.put("\x1b[0m\x1b[2J")
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.put(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[0J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(io::stdout())?;
        // A terminal that does not report its size gets the usual one.
        let or = |n: u16, usual| if n == 0 { usual } else { n };
        Ok(Size { width: or(size.ws_col, 80), height: or(size.ws_row, 24) })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&self.out)?;
        self.out.clear();
        stdout.flush()
    }
}

/// Returns the escape sequence for a style. It supports only the styles that `draw` uses.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn sgr(color: Color, modifier: Modifier) -> String {
    let mut codes = vec!["0"];
    if modifier.contains(Modifier::BOLD) {
        codes.push("1");
    }
    if modifier.contains(Modifier::DIM) {
        codes.push("2");
    }
    if modifier.contains(Modifier::REVERSED) {
        codes.push("7");
    }
    codes.extend(match color {
        Color::Red => Some("31"),
        Color::Green => Some("32"),
        Color::Yellow => Some("33"),
        Color::Blue => Some("34"),
        Color::Magenta => Some("35"),
        Color::Cyan => Some("36"),
        _ => None,
    });
    format!("\x1b[{}m", codes.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::buffer::Buffer;
    use ratatui_core::style::Style;

    fn drawn(text: &str, style: Style) -> String {
        let buffer = Buffer::with_lines([ratatui_core::text::Line::styled(text.to_owned(), style)]);
        let mut tty = Tty::default();
        let cells = buffer.content().iter().enumerate().map(|(x, cell)| (x as u16, 0, cell));
        tty.draw(cells).expect("to memory");
        String::from_utf8(tty.out).expect("text")
    }

    #[test]
    fn a_style_is_set_once_and_reset() {
        assert_eq!(drawn("ab", Style::new().fg(Color::Red)), "\x1b[1;1H\x1b[0;31mab\x1b[0m");
        assert_eq!(drawn("a", Style::new().add_modifier(Modifier::BOLD)), "\x1b[1;1H\x1b[0;1ma\x1b[0m");
        assert_eq!(drawn("x", Style::new()), "\x1b[1;1H\x1b[0mx\x1b[0m");
    }

    /// Not a real test: the test below runs it in a terminal.
    #[test]
    #[ignore = "takes the terminal and panics"]
    fn panics_while_the_terminal_is_taken() {
        let _taken = Taken::take().expect("a terminal");
        panic!("a bug");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use std::io::Read;
        use std::os::fd::OwnedFd;
        use std::process::{Command, Stdio};

        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("ours");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        let open = || std::fs::File::options().read(true).write(true).open(&name).expect("opens");
        let slave = open();
        let before = tcgetattr(&slave).expect("settings");
        let stdio = || Stdio::from(OwnedFd::from(open()));
        let role = "top::terminal::tests::panics_while_the_terminal_is_taken";
        let mut child = Command::new(std::env::current_exe().expect("ourselves"))
            .args(["--ignored", "--exact", "--nocapture", "--test-threads", "1", role])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("starts");
        assert!(!child.wait().expect("our child").success());
        let after = tcgetattr(&slave).expect("settings");
        assert_eq!(after.local_modes, before.local_modes);
        assert_eq!((after.input_modes, after.output_modes), (before.input_modes, before.output_modes));
        drop(slave);
        let mut said = Vec::new();
        // All writers are gone, so the read returns the remaining output and then fails.
        let _ = std::fs::File::from(master).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let (entered, left) = (said.find("\x1b[?1049h"), said.find("\x1b[?1049l"));
        assert!(entered < left && left < said.find("a bug"), "{said:?}");
    }
}
