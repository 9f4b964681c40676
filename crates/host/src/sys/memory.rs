//! Releases the memory of code pages, so that a process that sleeps for hours stays small.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

/// The most bytes read from the list of mappings.
const MAX_MAPS: u64 = 1024 * 1024;

/// Drops the code and constants of this process from memory. The pages belong to files, so the kernel maps them again
/// on the next access, at about a microsecond per page.
///
/// Best effort: does nothing without /proc.
pub fn give_back_code() {
    let Ok(maps) = File::open("/proc/self/maps") else { return };
    let lines = BufReader::new(maps.take(MAX_MAPS)).lines().map_while(Result::ok);
    // Collect all ranges first, because changing the mappings changes the list.
    let found: Vec<Range<usize>> = lines.filter_map(|line| unchanging(&line)).collect();
    for Range { start, end } in found {
        // SAFETY: the range is a whole private mapping of a file that nothing has written to since it was mapped (see
        // `unchanging`). Its pages equal the file, and the next access reads them from there.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// Returns the range of a mapping that certainly equals its file: code, or the read-only segment at the start of the
/// file. A later read-only segment may be data that the loader relocated and then protected.
fn unchanging(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let (_device, inode) = (words.next()?, words.next()?);
    let is_code = rights == "r-xp";
    let is_head = rights == "r--p" && offset.bytes().all(|digit| digit == b'0');
    if inode == "0" || !(is_code || is_head) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |hex: &str| usize::from_str_radix(hex, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_mappings_are_released() {
        let code = "55d0c7a00000-55d0c8800000 r-xp 00338000 fe:00 77 /usr/bin/dogwatch";
        assert_eq!(unchanging(code), Some(0x55d0_c7a0_0000..0x55d0_c880_0000));
        let head = "7f0000000000-7f0000028000 r--p 00000000 fe:00 78 /usr/lib/libc.so.6";
        assert_eq!(unchanging(head), Some(0x7f00_0000_0000..0x7f00_0002_8000));
        for other in [
            "7f0000200000-7f0000204000 r--p 001d0000 fe:00 78 /usr/lib/libc.so.6",
            "7f0000204000-7f0000206000 rw-p 001d4000 fe:00 78 /usr/lib/libc.so.6",
            "7f0000300000-7f0000301000 r-xp 00000000 00:00 0 [vdso]",
            "7f0000400000-7f0000401000 r-xs 00000000 fe:00 79 /dev/shm/x",
            "7f0000500000-7f0000501000 rwxp 00000000 fe:00 79 /tmp/patched",
            "",
            "nonsense",
            "zz-yy r-xp 0 0 7",
        ] {
            assert_eq!(unchanging(other), None, "{other}");
        }
    }

    #[test]
    fn the_process_still_works_and_is_smaller() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("it can be read");
            statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
        };
        let before = resident();
        give_back_code();
        let after = resident();
        assert!(after < before, "{after} pages, {before} before");
        // Run code from many places: formatting, sorting, allocating, threads and unwinding.
        let caught =
            std::thread::spawn(|| std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7))));
        assert!(caught.join().expect("it is caught within").is_err());
        let mut words: Vec<String> = (0..1000).map(|i| format!("{:>5}", (i * 7919) % 1000)).collect();
        words.sort();
        assert_eq!(words.first().map(String::as_str), Some("    0"));
    }
}
