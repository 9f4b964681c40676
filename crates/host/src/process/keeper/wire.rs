//! Encodes orders and reports: one tag byte, then little-endian numbers and length-prefixed strings.
//!
//! Both ends are the same binary, so the format has no version. Unreadable bytes are [`Garbage`] and end the
//! connection.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::order::{EnvChange, Order, Remnant, Report, StartOrder};
use crate::sys::HowEnded;

/// Bytes that are neither an order nor a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid bytes on the control socket of the keeper")]
pub struct Garbage;

#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn number(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn count(self, value: usize) -> Self {
        self.number(u64::try_from(value).expect("usize is at most 64 bits wide"))
    }
    fn bytes(mut self, value: &[u8]) -> Self {
        self = self.count(value.len());
        self.0.extend_from_slice(value);
        self
    }
    /// Writes microseconds: most short commands use less than a millisecond of CPU time.
    fn span(self, value: Duration) -> Self {
        self.number(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
    }
    fn signed(self, value: i32) -> Self {
        self.number(i64::from(value).cast_unsigned())
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbage> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Garbage)?;
        self.0 = rest;
        Ok(head)
    }
    fn byte(&mut self) -> Result<u8, Garbage> {
        Ok(self.take(1)?[0])
    }
    fn number(&mut self) -> Result<u64, Garbage> {
        let bytes = self.take(8)?.try_into().map_err(|_| Garbage)?;
        Ok(u64::from_le_bytes(bytes))
    }
    /// Reads the count of a list. Each item takes at least one byte, so a count above the remaining bytes is garbage.
    /// A broken peer cannot cause a large allocation.
    fn count(&mut self) -> Result<usize, Garbage> {
        let count = usize::try_from(self.number()?).map_err(|_| Garbage)?;
        if count <= self.0.len() { Ok(count) } else { Err(Garbage) }
    }
    fn bytes(&mut self) -> Result<Vec<u8>, Garbage> {
        let length = self.count()?;
        Ok(self.take(length)?.to_vec())
    }
    fn text(&mut self) -> Result<String, Garbage> {
        String::from_utf8(self.bytes()?).map_err(|_| Garbage)
    }
    fn span(&mut self) -> Result<Duration, Garbage> {
        Ok(Duration::from_micros(self.number()?))
    }
    fn signed(&mut self) -> Result<i32, Garbage> {
        i32::try_from(self.number()?.cast_signed()).map_err(|_| Garbage)
    }
    fn pid(&mut self) -> Result<u32, Garbage> {
        u32::try_from(self.number()?).map_err(|_| Garbage)
    }
    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Result<T, Garbage>) -> Result<Vec<T>, Garbage> {
        let count = self.count()?;
        (0..count).map(|_| one(self)).collect()
    }
    fn end<T>(self, value: T) -> Result<T, Garbage> {
        if self.0.is_empty() { Ok(value) } else { Err(Garbage) }
    }
}

const HOLD: u8 = 1;
const START: u8 = 2;
const INTERRUPT: u8 = 3;
const TERMINATE: u8 = 4;
const KILL: u8 = 5;
const SWEEP: u8 = 6;
const PASS: u8 = 7;

/// Returns the body of a `Hold` order. Its descriptor is attached separately.
pub fn hold_body() -> Vec<u8> {
    vec![HOLD]
}

/// Returns the body of an order and the descriptors to attach to it.
pub fn encode_order(order: Order) -> (Vec<u8>, Vec<OwnedFd>) {
    match order {
        Order::Hold(fd) => (hold_body(), vec![fd]),
        Order::Start(start) => (encode_start(&start), Vec::from(start.stdio)),
        Order::Interrupt => (vec![INTERRUPT], vec![]),
        Order::Terminate => (vec![TERMINATE], vec![]),
        Order::Pass(signal) => (Writer::default().byte(PASS).signed(signal.as_raw()).0, vec![]),
        Order::Kill => (vec![KILL], vec![]),
        Order::Sweep { grace } => (Writer::default().byte(SWEEP).span(grace).0, vec![]),
    }
}

fn encode_start(start: &StartOrder) -> Vec<u8> {
    let mut out = Writer::default().byte(START).number(start.job).count(start.argv.len());
    for argument in &start.argv {
        out = out.bytes(argument);
    }
    out = out.count(start.env.len());
    for (name, value) in &start.env {
        out = match value {
            Some(value) => out.bytes(name).byte(1).bytes(value),
            None => out.bytes(name).byte(0),
        };
    }
    out.bytes(start.cwd.as_os_str().as_bytes()).0
}

/// Decodes an order. Takes its descriptors from the front of `fds`.
pub fn decode_order(body: &[u8], fds: &mut VecDeque<OwnedFd>) -> Result<Order, Garbage> {
    let mut input = Reader(body);
    let order = match input.byte()? {
        HOLD => Order::Hold(fds.pop_front().ok_or(Garbage)?),
        START => Order::Start(decode_start(&mut input, fds)?),
        INTERRUPT => Order::Interrupt,
        TERMINATE => Order::Terminate,
        PASS => Order::Pass(Signal::from_named_raw(input.signed()?).ok_or(Garbage)?),
        KILL => Order::Kill,
        SWEEP => Order::Sweep { grace: input.span()? },
        _ => return Err(Garbage),
    };
    input.end(order)
}

fn decode_start(input: &mut Reader<'_>, fds: &mut VecDeque<OwnedFd>) -> Result<StartOrder, Garbage> {
    let mut fd = || fds.pop_front().ok_or(Garbage);
    Ok(StartOrder {
        stdio: [fd()?, fd()?, fd()?],
        job: input.number()?,
        argv: input.list(Reader::bytes)?,
        env: input.list(decode_change)?,
        cwd: PathBuf::from(OsString::from_vec(input.bytes()?)),
    })
}

fn decode_change(input: &mut Reader<'_>) -> Result<EnvChange, Garbage> {
    let name = input.bytes()?;
    match input.byte()? {
        0 => Ok((name, None)),
        1 => Ok((name, Some(input.bytes()?))),
        _ => Err(Garbage),
    }
}

const READY: u8 = 1;
const STARTED: u8 = 2;
const REFUSED: u8 = 3;
const EXITED: u8 = 4;
const EMPTY: u8 = 5;
const UNKILLABLE: u8 = 6;

/// Returns the body of a report.
pub fn encode_report(report: &Report) -> Vec<u8> {
    let out = Writer::default();
    match report {
        Report::Ready { pid } => out.byte(READY).number(u64::from(*pid)),
        Report::Started { job, pid } => out.byte(STARTED).number(*job).number(u64::from(*pid)),
        Report::Refused { job, errno, message } => {
            out.byte(REFUSED).number(*job).signed(*errno).bytes(message.as_bytes())
        }
        Report::Exited { job, how, cpu, alone } => {
            let (kind, value) = match how {
                HowEnded::Code(code) => (0, *code),
                HowEnded::Signal(signal) => (1, *signal),
            };
            out.byte(EXITED).number(*job).byte(kind).signed(value).span(*cpu).byte(u8::from(*alone))
        }
        Report::Empty { job, killed } => out.byte(EMPTY).number(*job).number(*killed),
        Report::Unkillable { job, left, detail } => {
            let out = out.byte(UNKILLABLE).number(*job).number(*left).count(detail.len());
            detail.iter().fold(out, |out, remnant| {
                let state = u64::from(u32::from(remnant.state));
                out.number(u64::from(remnant.pid)).bytes(remnant.comm.as_bytes()).number(state)
            })
        }
    }
    .0
}

/// Decodes a report.
pub fn decode_report(body: &[u8]) -> Result<Report, Garbage> {
    let mut input = Reader(body);
    let report = match input.byte()? {
        READY => Report::Ready { pid: input.pid()? },
        STARTED => Report::Started { job: input.number()?, pid: input.pid()? },
        REFUSED => Report::Refused { job: input.number()?, errno: input.signed()?, message: input.text()? },
        EXITED => decode_exited(&mut input)?,
        EMPTY => Report::Empty { job: input.number()?, killed: input.number()? },
        UNKILLABLE => {
            let (job, left) = (input.number()?, input.number()?);
            Report::Unkillable { job, left, detail: input.list(decode_remnant)? }
        }
        _ => return Err(Garbage),
    };
    input.end(report)
}

fn decode_exited(input: &mut Reader<'_>) -> Result<Report, Garbage> {
    let job = input.number()?;
    let how = match (input.byte()?, input.signed()?) {
        (0, code) => HowEnded::Code(code),
        (1, signal) => HowEnded::Signal(signal),
        _ => return Err(Garbage),
    };
    Ok(Report::Exited { job, how, cpu: input.span()?, alone: input.byte()? == 1 })
}

fn decode_remnant(input: &mut Reader<'_>) -> Result<Remnant, Garbage> {
    let (pid, comm) = (input.pid()?, input.text()?);
    let state = u32::try_from(input.number()?).ok().and_then(char::from_u32).ok_or(Garbage)?;
    Ok(Remnant { pid, comm, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports() -> Vec<Report> {
        let cpu = Duration::from_micros(1_234_567);
        let remnant = Remnant { pid: 3, comm: "a b".into(), state: 'D' };
        vec![
            Report::Ready { pid: 1 },
            Report::Started { job: u64::MAX, pid: u32::MAX },
            Report::Refused { job: 2, errno: 2, message: "ls: not found".into() },
            Report::Exited { job: 3, how: HowEnded::Code(255), cpu, alone: true },
            Report::Exited { job: 3, how: HowEnded::Signal(9), cpu, alone: false },
            Report::Empty { job: 4, killed: 5 },
            Report::Unkillable { job: 6, left: 7, detail: vec![remnant.clone(), remnant] },
        ]
    }

    #[test]
    fn a_report_survives_encoding_and_decoding() {
        for report in reports() {
            assert_eq!(decode_report(&encode_report(&report)), Ok(report));
        }
    }

    #[test]
    fn a_truncated_or_too_long_report_is_garbage() {
        for report in reports() {
            let whole = encode_report(&report);
            for length in 0..whole.len() {
                assert_eq!(decode_report(&whole[..length]), Err(Garbage), "{report:?} cut to {length}");
            }
            assert_eq!(decode_report(&[whole, vec![0]].concat()), Err(Garbage));
        }
    }

    #[test]
    fn an_order_that_is_truncated_or_lacks_descriptors_is_garbage() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null exists"));
        let start = StartOrder {
            job: 1,
            argv: vec![b"a".to_vec(), Vec::new()],
            env: vec![(b"X".to_vec(), None), (b"Y".to_vec(), Some(b"1".to_vec()))],
            cwd: "/".into(),
            stdio: [null(), null(), null()],
        };
        let (whole, fds) = encode_order(Order::Start(start));
        assert!(decode_order(&whole, &mut fds.into()).is_ok());
        assert!(decode_order(&whole, &mut VecDeque::from([null(), null()])).is_err());
        for length in 0..whole.len() {
            let fds = &mut VecDeque::from([null(), null(), null()]);
            assert!(decode_order(&whole[..length], fds).is_err(), "cut to {length}");
        }
    }

    // promise: 4
    #[test]
    fn count_beyond_the_bytes_is_garbage_and_allocates_nothing() {
        let body = Writer::default().byte(START).number(1).number(u64::MAX).0;
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null exists"));
        assert!(decode_order(&body, &mut VecDeque::from([null(), null(), null()])).is_err());
    }
}
