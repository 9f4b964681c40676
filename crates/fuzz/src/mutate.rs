//! Changes inputs at random. A seed determines every change.

use dogwatch_sim::dice::Dice;

/// The longest input.
pub const MAX_INPUT: usize = 16 * 1024;
/// The most changes of one input.
const MAX_CHANGES: u64 = 6;

/// Pieces that parsers treat in a special way.
const PIECES: [&[u8]; 40] = [
    b"<!-- ralph:state idle reason=x -->",
    b"-->",
    b"<!--",
    b"ralph:state",
    b"```",
    b"    ",
    b"> ",
    b"\x1b[31m",
    b"\x1b]0;",
    b"\x9b",
    b"\x07",
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    b"\xff\xfe",
    b"\r\n",
    b"\n",
    b"\0",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"\\\"",
    b",",
    b":",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"---\n",
    b"{{ commands.c }}",
    b"&a *a",
    b"sk-0123456789abcdef",
    b"--token ",
    b"Bearer ",
    b"\"event\":\"run_started\"",
    b"${HOME}",
];

fn at(dice: &mut Dice, length: usize) -> usize {
    usize::try_from(dice.below(length as u64 + 1)).expect("an index fits")
}

/// Returns a changed copy of a seed.
pub fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = if seeds.is_empty() { Vec::new() } else { dice.of(seeds).clone() };
    // A window of a long seed, so that all its parts are reached.
    if input.len() > MAX_INPUT {
        let start = at(dice, input.len() - MAX_INPUT);
        input = input[start..start + MAX_INPUT].to_vec();
    }
    for _ in 0..=dice.below(MAX_CHANGES) {
        let (from, to) = (at(dice, input.len()), at(dice, input.len()));
        let range = from.min(to)..from.max(to);
        let short = range.start..range.end.min(range.start + 32);
        match dice.below(8) {
            0 => drop(input.drain(short)),
            1 => drop(input.drain(range)),
            2 => drop(input.splice(from..from, dice.of(&PIECES).iter().copied())),
            3 => {
                let piece = input[short].to_vec();
                drop(input.splice(to..to, piece));
            }
            4 if !seeds.is_empty() => {
                let other = dice.of(seeds);
                let piece = &other[at(dice, other.len())..];
                let piece = piece[..piece.len().min(512)].to_vec();
                drop(input.splice(range, piece));
            }
            5 => drop(input.splice(from..from, [u8::try_from(dice.below(256)).expect("a byte")])),
            _ => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    input.truncate(MAX_INPUT);
    input
}
